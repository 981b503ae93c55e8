// The client against a server: WEIR_URL names its RESP listener, in memory and empty. Without it, these tests are skipped.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mock, test } from 'node:test'
import { promisify } from 'node:util'
import { Worker } from 'node:worker_threads'
import { Ambiguous, Forbidden, IDReused, NEVER, NotCharged, Refused, Settled, Unavailable, UnknownID, Weir, WeirError } from '../lib/index.js'
import { gone, replies, Server } from './fake.js'

const url = process.env.WEIR_URL
const served = (name, work) => test(name, { skip: !url && 'WEIR_URL names no server' }, work)
const key = () => 'k:' + randomUUID()

function client(t, to = url, options) {
  const weir = new Weir(to, { timeoutMs: 30000, log() {}, ...options })
  t.after(() => weir.close())
  return weir
}

served('limits of one call are taken together', async t => {
  const weir = client(t), k = key()
  await Promise.all(Array.from({ length: 200 }, () => weir.take(k, ['1000/day', '10/day fixed_window'])))
  const d = await weir.peek(k, '1000/day')
  assert.equal(d.burst - d.remaining, 10)
  assert.equal(d.source, 'store')
})

served('a refusal says when', async t => {
  const weir = client(t), k = key()
  assert.ok((await weir.take(k, '1/h')).allowed)
  const d = await weir.take(k, '1/h')
  assert.equal(d.allowed, false)
  assert.ok(d.retryAfter >= 3500 && d.retryAfter <= 3600, String(d.retryAfter))
  assert.equal(d.headers['Retry-After'], String(d.retryAfter))
  assert.equal(d.headers['RateLimit-Policy'], '"default";q=1;w=3600')
  const never = await weir.take(k, '1/h', { cost: 2 })
  assert.deepEqual([never.never, never.retryAfter, never.headers['Retry-After']], [true, NEVER, undefined])
  assert.equal((await weir.peek(k + 'x', '5/h', { cost: 5 })).allowed, true)
  assert.equal((await weir.peek(k, '1/h', { cost: 1 })).allowed, false)
})

served('costs, keys and amounts', async t => {
  const weir = client(t, url, { prefix: 'p:' }), a = key(), b = key()
  const d = await weir.take([[a, '10/h', 3], [b, '20/h']], { cost: 2 })
  assert.deepEqual(d.limits.map(s => s.remaining), [7, 18])
  assert.equal((await weir.take({ [a]: '10/h', [b]: ['20/h', '30/day'] })).limits[1].remaining, 17)
  assert.equal((await weir.take(a, '10/h', { upTo: 100 })).granted, 6)
  assert.equal((await weir.refund(a, '10/h', { cost: 4 })).remaining, 4)
  assert.equal((await weir.record(a, '10/h', { cost: 3 })).remaining, 1)
  assert.equal((await weir.reset([[a, '10/h', 3]])).remaining, 10)
  assert.equal((await weir.take(a, '10/h', { cost: 5, keep: 6 })).allowed, false)
})

served('a take with an ID happens once', async t => {
  const weir = client(t), k = key()
  for (let i = 0; i < 3; i++) assert.equal((await weir.take(k, '10/h', { cost: 4, id: 'job' })).remaining, 6)
  await assert.rejects(weir.take(k, '10/h', { cost: 5, id: 'job' }), IDReused)
  await assert.rejects(weir.refund(k, '10/h', { id: 'other' }), e => e instanceof UnknownID && e.code === 'UNKNOWNID')
  assert.equal((await weir.refund(k, '10/h', { cost: 4, id: 'job' })).remaining, 10)
})

served('holds are settled or released', async t => {
  const weir = client(t), k = key()
  let last
  assert.equal(await weir.hold(k, '1000/day', { cost: 800 }, async h => { last = h; await h.settle(200); return 'done' }), 'done')
  assert.equal((await weir.peek(k, '1000/day')).remaining, 800)
  await assert.rejects(weir.hold(k, '1000/day', { cost: 800 }, () => { throw new RangeError('broken') }), RangeError)
  assert.equal((await weir.peek(k, '1000/day')).remaining, 800)
  await weir.hold(k, '1000/day', { cost: 300 }, () => {})
  assert.equal((await weir.peek(k, '1000/day')).remaining, 500)
  await assert.rejects(weir.hold(k, '1000/day', { cost: 800 }), Refused)
  await assert.rejects(last.settle(1), Settled)
})

served('a hold of several limits is settled at a number of each, and released without costs', async t => {
  const weir = client(t), k = key(), charges = [[k, '100/day', 10], [k, '1000/week', 800]]
  const remaining = async () => (await weir.peek([[k, '100/day'], [k, '1000/week']])).limits.map(s => s.remaining)
  await weir.hold(charges, h => h.settle([10, 300]))
  assert.deepEqual(await remaining(), [90, 700])
  const h = await weir.hold([[k, '100/day', 10], [k, '1000/week', 100]])
  assert.deepEqual(await remaining(), [80, 600])
  await h.release()
  assert.deepEqual(await remaining(), [90, 700])
  await weir.hold([[k, '100/day', 5], [k, '1000/week', 50]], () => {})
  assert.deepEqual(await remaining(), [85, 650])
})

served('slots', async t => {
  const weir = client(t), k = key(), limit = '1/30s concurrency'
  await weir.hold(k, limit, async h => {
    await assert.rejects(weir.hold(k, limit), Refused)
    await h.renew()
  })
  const h = await weir.hold(k, limit)
  assert.equal(h.ended, false)
  await h[Symbol.asyncDispose]()
  await h[Symbol.asyncDispose]()
  assert.equal(h.ended, true)
  await (await weir.hold(k, limit)).release()
})

served('wait', async t => {
  const weir = client(t), k = key(), began = performance.now()
  for (let i = 0; i < 3; i++) await weir.wait(k, '10/s burst 1', { timeoutMs: 60000 })
  assert.ok(performance.now() - began >= 199)
  await weir.take(k, '1/h')
  await assert.rejects(weir.wait(k, '1/h', { timeoutMs: 5000 }), Refused)
  const abort = new AbortController(), why = new Error('the caller left')
  const waiting = weir.wait(k, '1/h', { timeoutMs: 7200000, signal: abort.signal })
  setImmediate(() => abort.abort(why))
  await assert.rejects(waiting, why)
  await assert.rejects(weir.wait(k, '9/s', { signal: abort.signal }), why)
})

served('mistakes are named and charge nothing', async t => {
  const weir = client(t), k = key()
  await assert.rejects(weir.take(k, ['5/h', 'ten']), e => e instanceof WeirError && e.code === 'ERR' && /limits\[1\]\.limit is "ten"/.test(e.message))
  await assert.rejects(weir.take(k, '5/h', { cost: 1.5 }), /cost is 1.5: want a whole number/)
  await assert.rejects(weir.take(k, '5/h', { cost: '2' }), /cost is "2": want a whole number/)
  await assert.rejects(weir.take(k), /want at least one/)
  await assert.rejects(weir.take(k, 5), /limits\[0\]\.limit is 5/)
  await assert.rejects(weir.take(undefined, '5/h'), /want none beside several keys/)
  await assert.rejects(weir.take([[7, '5/h']]), /limits\[0\]\.key is 7/)
  assert.equal((await weir.peek(k, '5/h')).remaining, 5)
})

served('check', t => client(t).check())

served('many calls share a connection', async t => {
  const weir = client(t), k = key()
  const granted = await Promise.all(Array.from({ length: 2000 }, () => weir.take(k, '50/day')))
  assert.equal(granted.filter(d => d.allowed).length, 50)
  const counts = await Promise.all(Array.from({ length: 200 }, (_, i) => weir.take(`${k}${i}ключ`, `${i + 1}/day`, { cost: 0 })))
  assert.deepEqual(counts.map(d => d.count), Array.from({ length: 200 }, (_, i) => i + 1))
})

served('limited functions', async t => {
  const weir = client(t), k = key()
  const greet = weir.limit('2/h', { key: user => k + user }, user => 'hello ' + user)
  assert.deepEqual([await greet('a'), await greet('a'), await greet('b')], ['hello a', 'hello a', 'hello b'])
  await assert.rejects(greet('a'), Refused)
})

served('a closed client stays usable, and an idle one lets the process end', async t => {
  const weir = client(t), k = key()
  const last = weir.take(k, '9/h')
  await weir.close()
  assert.equal((await last).source, 'store')
  assert.equal((await weir.take(k, '9/h')).remaining, 7)
  const program = `import { Weir } from ${JSON.stringify(import.meta.resolve('../lib/index.js'))}
    console.log((await new Weir({ timeoutMs: 30000 }).take(${JSON.stringify(k)}, '9/h')).remaining)`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program], { timeout: 60000 })
  assert.equal(stdout, '6\n')
})

served('a reply that came while the program was busy is no outage', async t => {
  const weir = client(t, url, { timeoutMs: 2000 }), k = key()
  await client(t).take(k, '9/h')
  const first = weir.take(k, '9/h')
  // Until the command has left.
  await new Promise(setImmediate)
  await new Promise(setImmediate)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500)
  assert.equal((await first).source, 'store')
})

test('a program may put other timers in the place of its own', async t => {
  const server = await Server.start(t, () => replies.granted)
  const weir = client(t, server.url)
  mock.timers.enable({ apis: ['setImmediate', 'setTimeout', 'Date'] })
  const d = await weir.take('k', '9/h').finally(() => mock.timers.reset())
  assert.equal(d.source, 'store')
})

test('this process enforces its share', async t => {
  const weir = client(t, await gone()), k = key()
  const granted = []
  for (let i = 0; i < 30; i++) granted.push(await weir.take(k, ['20/h', '1000/h']))
  assert.equal(granted.filter(d => d.allowed).length, 10)
  assert.deepEqual(new Set(granted.map(d => d.source)), new Set(['client_local']))
  assert.ok(granted.at(-1).retryAfterMs > 0)
  assert.deepEqual(Object.keys(granted.at(-1).headers), ['Retry-After'])
  await weir.hold(k, '2/30s concurrency', async h => {
    await assert.rejects(weir.hold(k, '2/30s concurrency'), Refused)
    await h.renew()
    await h.settle(1)
  })
  await weir.hold(k, '2/30s concurrency', () => {})
})

test('policies', async t => {
  const to = await gone(), k = key(), logged = []
  const open = client(t, to, { outage: 'open', log: line => logged.push(line) })
  const d = await open.take(k, '1/h', { cost: 9 })
  assert.deepEqual([d.allowed, d.source, d.granted], [true, 'client_open', 9])
  await open.take(k, '1/h')
  assert.equal(logged.length, 1)
  assert.match(logged[0], /^no decision from 127\.0\.0\.1:.*ECONNREFUSED.*outage open$/)
  assert.deepEqual([(await open.peek(k, '1/h')).allowed, (await open.peek(k, '1/h')).granted], [true, 0])
  const closed = client(t, to, { outage: 'closed' })
  assert.equal((await closed.take(k, '1/h')).allowed, false)
  assert.equal((await closed.peek(k, '1/h', { cost: 1 })).source, 'client_closed')
  const local = client(t, to)
  await local.take(k, '9/h', { cost: 4 })
  assert.equal((await local.peek(k, '9/h', { cost: 1 })).allowed, false)
  await assert.rejects(client(t, to, { outage: 'raise' }).take(k, '1/h'), NotCharged)
  await assert.rejects(client(t, to).refund(k, '1/h'), NotCharged)
  await assert.rejects(client(t, to).check(), Unavailable)
})

test('a call is sent twice only with an ID', async t => {
  const server = await Server.start(t, () => 'close')
  const weir = () => client(t, server.url, { outage: 'raise' })
  await assert.rejects(weir().take(key(), '9/h'), Ambiguous)
  assert.equal(server.commands.length, 1)
  await assert.rejects(weir().take(key(), '9/h', { id: 'x' }), Ambiguous)
  assert.equal(server.commands.length, 3)
  assert.equal(server.commands[1], server.commands[2])
})

test('a call with an ID is answered by the second connection, and those behind it are not sent again', async t => {
  let n = 0
  const server = await Server.start(t, () => n++ === 0 ? 'close' : replies.granted)
  const weir = client(t, server.url, { outage: 'raise' })
  const [first, second] = await Promise.allSettled([weir.take('a', '9/h', { id: 'x' }), weir.take('b', '9/h')])
  assert.equal(first.value.source, 'store')
  assert.ok(second.reason instanceof Ambiguous)
  // The server closed the connection before it read that.
  assert.equal(server.commands.filter(c => c.includes('\r\nb\r\n')).length, 0)
})

test('a connection that the server closed while the program was busy is noticed before the write', async t => {
  const flag = new Int32Array(new SharedArrayBuffer(4))
  const server = new Worker(new URL('closing.js', import.meta.url), { workerData: { flag, granted: replies.granted } })
  t.after(() => server.terminate())
  const [port] = await once(server, 'message')
  const weir = client(t, `weir://127.0.0.1:${port}`, { outage: 'raise' })
  await weir.take('a', '9/h')
  server.postMessage('close')
  // The event loop stands still meanwhile.
  assert.notEqual(Atomics.wait(flag, 0, 0, 60000), 'timed-out')
  assert.equal((await weir.take('b', '9/h')).source, 'store')
})

test('a server without an answer is left alone for a moment', async t => {
  const server = await Server.start(t, () => null)
  const weir = client(t, server.url, { timeoutMs: 500 })
  // Both wait for the same reply.
  const both = await Promise.all([weir.take('a', '9/h'), weir.take('b', '9/h')])
  const next = await weir.take('c', '9/h')
  assert.deepEqual([...both, next].map(d => d.source), Array(3).fill('client_local'))
  assert.equal(server.commands.length, 2)
})

test('a server that is there again decides', async t => {
  let up = false
  const server = await Server.start(t, () => up ? replies.granted : 'close'), weir = client(t, server.url)
  assert.equal((await weir.take('k', '9/h')).source, 'client_local')
  up = true
  const until = Date.now() + 60000
  while ((await weir.take('k', '9/h')).source !== 'store') {
    assert.ok(Date.now() < until)
    await new Promise(done => setTimeout(done, 50))
  }
})

test('check ends the pause after an outage', async t => {
  let up = false
  const server = await Server.start(t, () => up ? replies.granted : 'close'), weir = client(t, server.url)
  await weir.take('k', '9/h')
  up = true
  await weir.check()
  assert.equal((await weir.take('k', '9/h')).source, 'store')
})

test('a full queue is decided without the server, and says nothing about it', async t => {
  const server = await Server.start(t, () => replies.granted)
  const weir = client(t, server.url, { maxPending: 3, outage: 'closed' })
  const found = await Promise.all(Array.from({ length: 5 }, (_, i) => weir.take(`k${i}`, '9/h')))
  assert.deepEqual(found.map(d => d.source), ['store', 'store', 'store', 'client_closed', 'client_closed'])
  assert.equal((await weir.take('k', '9/h')).source, 'store')
})

test('another service is an outage, and receives no command', async t => {
  const server = await Server.start(t, undefined, 'HTTP/1.1 400 Bad Request\r\n\r\n')
  await assert.rejects(client(t, server.url, { outage: 'raise' }).take(key(), '9/h'), e => e instanceof NotCharged && /no reply of Weir/.test(e.message))
  assert.equal(server.commands.length, 0)
})

test('a server that is full, or refuses the token, is an outage', async t => {
  const full = await Server.start(t, undefined, '-ERR max number of clients reached\r\n')
  assert.equal((await client(t, full.url).take(key(), '9/h')).source, 'client_local')
  const secret = await Server.start(t, undefined, '-WRONGPASS invalid\r\n')
  const weir = client(t, secret.url.replace('//', '//me:t%2Fn@'))
  assert.equal((await weir.take(key(), '9/h')).source, 'client_local')
  assert.equal(secret.greetings[0], '*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$3\r\nt/n\r\n')
  await assert.rejects(weir.check(), Forbidden)
})

test('a verb that is forbidden says nothing about takes', async t => {
  const server = await Server.start(t, command => command.includes('WEIR.RESET') ? '-NOPERM no\r\n' : replies.granted)
  const weir = client(t, server.url)
  await assert.rejects(weir.reset('a', '9/h'), Forbidden)
  assert.equal((await weir.take('a', '9/h')).source, 'store')
})

test('no decision of the server is an outage', async t => {
  for (const [word, kind] of [['NOTCHARGED', NotCharged], ['AMBIGUOUS', Ambiguous]]) {
    const server = await Server.start(t, () => `-${word} no decision\r\n`)
    assert.equal((await client(t, server.url).take('a', '9/h')).source, 'client_local')
    await assert.rejects(client(t, server.url, { outage: 'raise' }).take('a', '9/h'), e => e.constructor === kind && e.code === word)
  }
})

test('arguments', async () => {
  for (const [bad, options] of [['redis://h'], ['weir://'], ['weir+unix://'], ['h'], ['weir://h', { outage: 'maybe' }], ['weir://h', { share: 0 }], ['weir://h', { timeoutMs: 0 }], ['weir://h', { maxPending: 0 }]]) {
    assert.throws(() => new Weir(bad, options), /is .*: want /, bad)
  }
  assert.throws(() => new Weir('http://me:secret@h'), e => !e.message.includes('secret'))
  new Weir(new URL('weirs://me:token@[::1]:7000/shop'))
})
