// Decisions in an outage, by a clock that stands.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Decision } from '../lib/decision.js'
import { Local } from '../lib/local.js'

function local(share = 0.5) {
  let now = 1000
  const l = new Local(share, () => now)
  return { take: (key, limit, cost = 1, options) => l.take([[key, limit]], cost, options), all: (...args) => l.take(...args), advance: ms => { now += ms }, l }
}

test('a share of the limit is granted at once, and the rest in time', () => {
  const { take, advance } = local()
  for (let i = 0; i < 10; i++) assert.equal(take('k', '20/min').remaining, 9 - i)
  const d = take('k', '20/min')
  assert.deepEqual([d.allowed, d.retryAfterMs, d.resetAfterMs, d.source], [false, 6000, 60000, 'client_local'])
  advance(d.retryAfterMs)
  assert.equal(take('k', '20/min').allowed, true)
  assert.equal(take('k', '20/min').allowed, false)
  assert.equal(take('other', '20/min').allowed, true)
})

test('headers say nothing of a limit that is not known, and 0 of a blocked key', () => {
  const { take } = local()
  assert.deepEqual(take('k', '2/h').headers, {})
  assert.deepEqual(take('k', '2/h').headers, { 'Retry-After': '3600' })
  const blocked = new Decision([0, 0, 5000, 0, 0, 0, 0, 'store', 0, 60000, 0])
  assert.deepEqual(blocked.headers, { 'RateLimit-Policy': '"default";q=0;w=60', RateLimit: '"default";r=0;t=0', 'Retry-After': '5' })
})

test('the smallest limits keep a unit', () => {
  const { take } = local()
  assert.equal(take('k', '1/h').allowed, true)
  assert.equal(take('k', '1/h').retryAfterMs, 3600000)
  assert.equal(take('k', '1/h', 2).retryAfterMs, -1)
})

test('all forms of a limit are read', () => {
  for (const [text, units] of [
    ['10/s', 5], ['10/sec', 5], ['10/week', 5], ['10/1h30m', 5], ['10/250ms', 5], ['10/1.5s', 5], ['login=10/h', 5], ['10/min burst 4', 2],
    ['10/min sliding_log', 5], ['10/day fixed_window anchor first charge_refused', 5], ['10/30s concurrency', 5],
  ]) {
    const { take } = local()
    let n = 0
    while (n < 50 && take('k', text, 1, { id: `id${n}` }).allowed) n++
    assert.equal(n, units, text)
  }
})

test('a limit that only the server reads is not enforced', () => {
  const { take, all } = local()
  for (const text of ['10/fortnight', 'many/s', '', '0/s', '10/min burst 0']) for (let i = 0; i < 30; i++) assert.equal(take('k', text).allowed, true, text)
  assert.deepEqual(Array.from({ length: 3 }, () => all([['k', 'ten'], ['k', '4/h']], 1).allowed), [true, true, false])
})

test('all limits are charged or none', () => {
  const { all, take } = local()
  assert.equal(all([['a', '20/h'], ['b', '2/h']], 1).allowed, true)
  for (let i = 0; i < 20; i++) assert.equal(all([['a', '20/h'], ['b', '2/h']], 1).allowed, false)
  assert.equal(take('a', '20/h').remaining, 8)
  assert.equal(all([['a', '20/h', 3], ['c', '20/h']], 1).allowed, true)
  assert.equal(take('a', '20/h').remaining, 4)
})

test('as many as fit, and units for others', () => {
  const { take } = local()
  assert.equal(take('k', '20/h', 1, { keep: 14 }).granted, 1)
  assert.equal(take('k', '20/h', 3, { keep: 14 }).allowed, false)
  assert.equal(take('k', '20/h', 2, { keep: 14 }).allowed, true)
  assert.equal(take('k', '20/h', undefined, { upTo: 100 }).granted, 7)
  assert.equal(take('k', '20/h', undefined, { upTo: 100 }).allowed, false)
})

test('a counter shows what all processes have used if each uses as much', () => {
  const { take, advance } = local()
  const used = d => 4294967295 - d.remaining
  assert.deepEqual([1, 1, 3].map(n => used(take('k', 'counter/60s', n))), [2, 4, 10])
  advance(59999)
  const d = take('k', 'counter/60s')
  assert.deepEqual([used(d), d.resetAfterMs, d.allowed], [12, 1, true])
  advance(1)
  assert.equal(used(take('k', 'counter/60s')), 2)
})

test('a peek says whether units fit, and charges nothing', () => {
  const { take } = local()
  for (let i = 0; i < 3; i++) assert.deepEqual([take('k', '8/h', 4, { peek: true }).allowed, take('k', '8/h', 4, { peek: true }).granted], [true, 0])
  assert.equal(take('k', '8/h', 3).remaining, 1)
  const d = take('k', '8/h', 2, { peek: true })
  assert.deepEqual([d.allowed, d.remaining, d.retryAfterMs], [false, 1, 900000])
  assert.equal(take('k', '8/h', 0, { peek: true }).remaining, 1)
  const fresh = take('k', 'counter/60s', 0, { peek: true })
  assert.deepEqual([fresh.remaining, fresh.resetAfterMs], [4294967295, 0])
})

test('slots are returned, renewed, and end by themselves', () => {
  const { take, advance, l } = local(), slot = id => take('db', '4/30s concurrency', 1, { id, holdMs: 1000 }).allowed
  assert.deepEqual(['a', 'b', 'c'].map(slot), [true, true, false])
  l.release('a')
  assert.equal(slot('c'), true)
  advance(500)
  l.renew('b', 1000)
  advance(500)
  assert.deepEqual(['d', 'e'].map(slot), [true, false])
})

test('the number of keys is bounded', () => {
  const { take } = local()
  for (let i = 0; i < 11000; i++) {
    take(`k${i}`, '2/day')
    take(`k${i}`, 'counter/1h')
    take(`k${i}`, '2/30s concurrency', 1, { id: 'a' })
    take('k', `${i}/day`)
  }
  assert.equal(take('k10999', '2/day').allowed, false)
  assert.equal(take('k0', '2/day').allowed, true)
})
