// Ways to reach a server: WEIR_UNIX_URL names one at a socket, WEIR_TLS_URL one with a certificate of WEIR_TLS_CA and a token.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Forbidden, NotCharged, Weir } from '../lib/index.js'

const { WEIR_UNIX_URL: unix, WEIR_TLS_URL: secure, WEIR_TLS_CA: ca } = process.env
const options = { timeoutMs: 30000, outage: 'raise', log() {} }

function client(t, ...args) {
  const weir = new Weir(...args)
  t.after(() => weir.close())
  return weir
}

test('a socket of Unix', { skip: !unix && 'WEIR_UNIX_URL names no server' }, async t => {
  const key = randomUUID(), weir = client(t, unix, { ...options, domain: 'shop' })
  assert.equal((await weir.take(key, '5/h')).remaining, 4)
  assert.equal((await client(t, unix, options).take(key, '5/h')).remaining, 4)
  await weir.check()
})

test('TLS and credentials', { skip: !secure && 'WEIR_TLS_URL names no server' }, async t => {
  const key = randomUUID(), tls = { ca: readFileSync(ca) }
  const weir = client(t, secure, { ...options, tls })
  const found = await Promise.all(Array.from({ length: 50 }, () => weir.take(key, '20/h')))
  assert.equal(found.filter(d => d.allowed && d.source === 'store').length, 20)
  await weir.check()

  await assert.rejects(client(t, secure, options).take(key, '20/h'), e => e instanceof NotCharged && /certificate/.test(e.message))
  await assert.rejects(client(t, secure.replace('weirs:', 'weir:'), options).take(key, '20/h'), NotCharged)
  await assert.rejects(client(t, secure, { ...options, tls, token: 'wrong' }).take(key, '20/h'), Forbidden)

  const other = client(t, secure, { ...options, tls, outage: 'local', domain: 'other' })
  assert.equal((await other.take(key, '20/h')).source, 'client_local')
  await assert.rejects(other.check(), Forbidden)
  await assert.rejects(weir.reset(key, '20/h'), Forbidden)
  assert.equal((await weir.take(key, '20/h')).source, 'store')
})
