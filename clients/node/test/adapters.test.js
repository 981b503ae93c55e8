// The adapters with the packages that they are for, against a server: WEIR_URL. Without one, or without `npm ci`, these tests are skipped.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import http from 'node:http'
import { test } from 'node:test'
import { WeirStore } from '../lib/express-rate-limit.js'
import { limitedFetch, RequestRefused } from '../lib/fetch.js'
import { Unavailable, Weir } from '../lib/index.js'
import { expressLimit, fastifyLimit, honoLimit } from '../lib/middleware.js'
import { WeirThrottlerStorage } from '../lib/nestjs-throttler.js'
import { gone } from './fake.js'

const url = process.env.WEIR_URL
const skip = !url ? 'WEIR_URL names no server' : !existsSync(new URL('../node_modules/express', import.meta.url)) && 'run npm ci'
const adapter = (name, work) => test(name, { skip }, work)
const key = () => 'k:' + randomUUID()

function client(t, to = url, options) {
  const weir = new Weir(to, { timeoutMs: 30000, log() {}, ...options })
  t.after(() => weir.close())
  return weir
}

async function listen(t, handler) {
  const server = http.createServer(handler).listen(0, '127.0.0.1')
  t.after(() => { server.closeAllConnections(); server.close() })
  await once(server, 'listening')
  return `http://127.0.0.1:${server.address().port}`
}

// statuses makes n requests and returns their statuses, and the last answer.
async function statuses(n, ask) {
  const found = []
  let last
  for (let i = 0; i < n; i++) {
    last = await ask()
    found.push(last.status)
    await last.text()
  }
  return [found, last]
}

adapter('express-rate-limit', async t => {
  const { default: express } = await import('express')
  const { rateLimit } = await import('express-rate-limit')
  const weir = client(t), app = express(), name = key()
  const options = { windowMs: 3600000, limit: 2, standardHeaders: 'draft-8', legacyHeaders: false, keyGenerator: () => name }
  app.get('/', rateLimit({ ...options, store: new WeirStore({ weir, prefix: 'a:' }) }), (_, response) => response.send('hello'))
  app.get('/failed', rateLimit({ ...options, skipFailedRequests: true, store: new WeirStore({ weir, prefix: 'b:' }) }), (_, response) => response.status(500).end())
  const base = await listen(t, app)
  const [found, last] = await statuses(3, () => fetch(base))
  assert.deepEqual(found, [200, 200, 429])
  assert.ok(Number(last.headers.get('Retry-After')) > 3500, last.headers.get('Retry-After'))
  assert.deepEqual((await statuses(4, () => fetch(base + '/failed')))[0], [500, 500, 500, 500])
})

adapter('the store of express-rate-limit', async t => {
  const weir = client(t), store = new WeirStore({ weir, prefix: key() })
  store.init({ windowMs: 60000 })
  assert.equal(await store.get('k'), undefined)
  await store.increment('k')
  const { totalHits, resetTime } = await store.increment('k')
  assert.equal(totalHits, 2)
  assert.ok(resetTime - Date.now() > 30000 && resetTime - Date.now() <= 60000)
  await store.decrement('k')
  assert.equal((await store.get('k')).totalHits, 1)
  await store.resetKey('k')
  assert.equal((await store.increment('k')).totalHits, 1)
  assert.equal((await store.increment('x'.repeat(5000))).totalHits, 1)
  assert.throws(() => store.init({ windowMs: 0.5 }), /want whole milliseconds/)
})

adapter('the store of express-rate-limit in an outage', async t => {
  const to = await gone()
  const hits = async (n, options) => {
    const store = new WeirStore({ weir: client(t, to, options) })
    store.init({ windowMs: 60000 })
    const found = []
    for (let i = 0; i < n; i++) found.push((await store.increment('k')).totalHits)
    await store.decrement('k')
    return found
  }
  assert.deepEqual(await hits(3), [2, 4, 6])
  assert.deepEqual(await hits(3, { share: 1 }), [1, 2, 3])
  assert.deepEqual(await hits(2, { outage: 'open' }), [1, 1])
  assert.deepEqual(await hits(2, { outage: 'closed' }), [4294967295, 4294967295])
  await assert.rejects(hits(1, { outage: 'raise' }), Unavailable)
})

adapter('hono-rate-limiter', async t => {
  const { Hono } = await import('hono')
  const { rateLimiter } = await import('hono-rate-limiter')
  const app = new Hono()
  app.use(rateLimiter({ windowMs: 3600000, limit: 2, keyGenerator: () => 'k', store: new WeirStore({ weir: client(t), prefix: key() }) }))
  app.get('/', c => c.text('hello'))
  assert.deepEqual((await statuses(3, () => app.request('/')))[0], [200, 200, 429])
})

for (const [name, start] of Object.entries({
  async express(t, weir, limits) {
    const { default: express } = await import('express')
    const app = express()
    app.use(expressLimit(weir, request => limits(request.path)))
    app.get('/', (_, response) => response.set('A', 'b').send('hello'))
    app.get('/free', (_, response) => response.send('hello'))
    app.use((error, _, response, next) => response.status(500).send(error.message))
    const base = await listen(t, app)
    return path => fetch(base + path)
  },
  async http(t, weir, limits) {
    const limit = expressLimit(weir, request => limits(request.url))
    const base = await listen(t, (request, response) => limit(request, response, error => error ? response.writeHead(500).end(error.message) : response.setHeader('A', 'b').end('hello')))
    return path => fetch(base + path)
  },
  async fastify(t, weir, limits) {
    const { fastify } = await import('fastify')
    const app = fastify()
    app.addHook('onRequest', fastifyLimit(weir, request => limits(request.url)))
    app.get('/', async (_, reply) => { reply.header('A', 'b'); return 'hello' })
    app.get('/free', async () => 'hello')
    t.after(() => app.close())
    return async path => {
      const r = await app.inject(path)
      return { status: r.statusCode, headers: new Headers(r.headers), text: async () => r.body }
    }
  },
  async hono(t, weir, limits) {
    const { Hono } = await import('hono')
    const app = new Hono()
    app.use(honoLimit(weir, c => limits(c.req.path)))
    app.get('/', () => new Response('hello', { headers: { A: 'b' } }))
    app.get('/free', c => c.text('hello'))
    app.onError((error, c) => c.text(error.message, 500))
    return path => app.request(path)
  },
})) {
  adapter(`middleware: ${name}`, async t => {
    const k = key()
    let limit = '2/h'
    const ask = await start(t, client(t), path => path === '/free' ? null : { [k]: [limit, '100/day'] })
    const answers = []
    for (let i = 0; i < 3; i++) answers.push(await ask('/'))
    assert.deepEqual(answers.map(a => a.status), [200, 200, 429])
    assert.deepEqual(['A', 'RateLimit-Policy'].map(h => answers[1].headers.get(h)), ['b', '"default";q=2;w=3600'])
    assert.match(answers[1].headers.get('RateLimit'), /^"default";r=0;t=3[56]\d\d$/)
    assert.ok(Number(answers[2].headers.get('Retry-After')) > 1500)
    assert.equal(await answers[2].text(), 'Too many requests.\n')
    assert.match(answers[2].headers.get('Content-Type'), /^text\/plain/)
    const free = await ask('/free')
    assert.deepEqual([free.status, free.headers.get('RateLimit')], [200, null])
    limit = 'ten'
    const broken = await ask('/')
    assert.equal(broken.status, 500)
    assert.match(await broken.text(), /limits\[0\]\.limit is/)
  })
}

adapter('NestJS', async t => {
  await import('reflect-metadata')
  const { Controller, Get, Module } = await import('@nestjs/common')
  const { APP_GUARD, NestFactory } = await import('@nestjs/core')
  const { ThrottlerGuard, ThrottlerModule } = await import('@nestjs/throttler')
  class Hello { hello() { return 'hello' } }
  Controller()(Hello)
  Get()(Hello.prototype, 'hello', Object.getOwnPropertyDescriptor(Hello.prototype, 'hello'))
  class App {}
  Module({
    imports: [ThrottlerModule.forRoot({ throttlers: [{ ttl: 3600000, limit: 2 }], storage: new WeirThrottlerStorage({ weir: client(t), prefix: key() }) })],
    controllers: [Hello], providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  })(App)
  const app = await NestFactory.create(App, { logger: false })
  await app.listen(0, '127.0.0.1')
  t.after(() => app.close())
  const [found, last] = await statuses(4, () => fetch(`http://127.0.0.1:${app.getHttpServer().address().port}`))
  assert.deepEqual(found, [200, 200, 429, 429])
  assert.ok(Number(last.headers.get('Retry-After')) > 3500)
})

adapter('the storage of NestJS', async t => {
  const storage = new WeirThrottlerStorage({ weir: client(t), prefix: key() })
  const increment = (...args) => storage.increment('k', ...args)
  assert.deepEqual(await increment(3600000, 2, 0, 'a'), { totalHits: 1, timeToExpire: 3600, isBlocked: false, timeToBlockExpire: 0 })
  assert.equal((await increment(3600000, 2, 0, 'a')).totalHits, 2)
  const refused = await increment(3600000, 2, 0, 'a')
  assert.deepEqual([refused.totalHits, refused.isBlocked, refused.timeToBlockExpire > 3500], [3, true, true])
  assert.equal((await increment(3600000, 2, 0, 'b')).isBlocked, false)
  assert.equal((await increment(1000, 0, 0, 'c')).isBlocked, true)
  // A block outlasts the window; a shorter one forgets the hits before it.
  for (const [name, ttl, block] of [['d', 1, 3600000], ['e', 3600000, 100]]) {
    assert.equal((await increment(ttl === 1 ? 3600000 : ttl, 1, block, name)).isBlocked, false)
    assert.equal((await increment(ttl === 1 ? 3600000 : ttl, 1, block, name)).isBlocked, true)
  }
  assert.equal((await increment(1, 5, 3600000, 'd')).isBlocked, true)
  const until = Date.now() + 60000
  while ((await increment(3600000, 1, 100, 'e')).isBlocked) {
    assert.ok(Date.now() < until)
    await new Promise(done => setTimeout(done, 20))
  }

  const down = new WeirThrottlerStorage({ weir: client(t, await gone()) })
  const found = []
  for (let i = 0; i < 8; i++) found.push((await down.increment('k', 3600000, 10, 3600000, 'a')).isBlocked)
  assert.deepEqual(found, [...Array(5).fill(false), ...Array(3).fill(true)])
})

adapter('rate-limiter-flexible', async t => {
  const { RateLimiterWeir } = await import('../lib/rate-limiter-flexible.js')
  const weir = client(t), limiter = options => new RateLimiterWeir({ storeClient: weir, keyPrefix: key(), points: 3, duration: 3600, ...options })
  const a = limiter()
  assert.equal(await a.get('k'), null)
  const first = await a.consume('k')
  assert.deepEqual([first.consumedPoints, first.remainingPoints, first.isFirstInDuration, first.msBeforeNext > 3500000], [1, 2, true, true])
  assert.equal((await a.penalty('k', 2)).consumedPoints, 3)
  await assert.rejects(a.consume('k'), r => r.consumedPoints === 4 && r.remainingPoints === 0)
  assert.equal((await a.reward('k', 3)).consumedPoints, 1)
  assert.equal((await a.get('k')).consumedPoints, 1)
  assert.deepEqual([await a.delete('k'), await a.delete('k')], [true, false])

  // A block is for its own time, and what is consumed in it is not counted after it.
  await a.block('k', 7200)
  await assert.rejects(a.consume('k'), r => r.msBeforeNext > 7100000 && r.consumedPoints === 5)
  await assert.rejects(a.consume('k'), r => r.consumedPoints === 5)
  assert.equal((await a.get('k')).consumedPoints, 4)
  await a.block('k', 0.2)
  const until = Date.now() + 60000
  while (await a.consume('k').then(() => false, () => true)) {
    assert.ok(Date.now() < until)
    await new Promise(done => setTimeout(done, 20))
  }
  assert.equal((await a.get('k')).consumedPoints, 1)

  await a.set('k', 2, 7200)
  assert.equal((await a.consume('k')).consumedPoints, 3)
  await assert.rejects(a.consume('k'), r => r.consumedPoints === 4 && r.msBeforeNext > 3700000)
  await a.set('k', 2, 3600)
  assert.equal((await a.consume('k')).consumedPoints, 3)

  const b = limiter({ blockDuration: 7200 })
  for (let i = 0; i < 3; i++) await b.consume('k')
  await assert.rejects(b.consume('k'), r => r.msBeforeNext === 7200000)
  await assert.rejects(b.consume('k'), r => r.msBeforeNext > 7000000)

  assert.throws(() => limiter({ duration: 0 }), /duration is 0: want seconds above 0/)
  await assert.rejects(a.block('k', 0), /duration is 0/)
  assert.equal((await limiter().consume('k', '2')).consumedPoints, 2)
  await assert.rejects(a.consume('k', 1.5), /points are 1.5: want a whole number/)

  const down = limiter({ storeClient: client(t, await gone()), points: 4 })
  const found = []
  for (let i = 0; i < 4; i++) found.push(await down.consume('k').then(() => true, r => r.consumedPoints))
  assert.deepEqual(found, [true, true, 6, 8])
})

test('limited fetch', { skip: !url && 'WEIR_URL names no server' }, async t => {
  const weir = client(t), k = key()
  let status = 200
  const asked = []
  const base = await listen(t, (request, response) => {
    asked.push(request.url)
    response.writeHead(status, status === 200 ? {} : { 'Retry-After': '7200' }).end('hello')
  })
  const limited = limitedFetch(weir, u => u.pathname !== '/free' && { [k]: '2/day' }, { waitMs: 5000 })
  assert.equal((await limited(base + '/1')).status, 200)
  assert.equal((await limited(new Request(base + '/2'))).status, 200)
  await assert.rejects(limited(new URL(base + '/3')), e => e instanceof RequestRefused && e.decision.retryAfterMs > 5000)
  status = 503
  const other = limitedFetch(weir, u => u.pathname !== '/free' && { [k]: '100/day' }, { waitMs: 5000 })
  assert.equal((await other(base + '/4')).status, 503)
  await assert.rejects(other(base + '/5'), e => e instanceof RequestRefused && e.decision === null && /asked to retry after 7200 s/.test(e.message))
  assert.equal((await other(base + '/free')).status, 503)
  assert.deepEqual(asked, ['/1', '/2', '/4', '/free'])
  const patient = limitedFetch(weir, () => ({ [k]: '2/day' }), { waitMs: 2 ** 40 }), why = new Error('left')
  const abort = new AbortController()
  const waiting = patient(base + '/6', { signal: abort.signal })
  setImmediate(() => abort.abort(why))
  await assert.rejects(waiting, why)
})
