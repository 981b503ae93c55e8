// Compiled by package.test.js, never run.
import { ThrottlerModule, type ThrottlerStorage } from '@nestjs/throttler'
import { Ambiguous, type Charges, Decision, Hold, NEVER, Refused, Weir, WeirError } from '@weirlimit/client'
import { WeirStore } from '@weirlimit/client/express-rate-limit'
import { limitedFetch, RequestRefused } from '@weirlimit/client/fetch'
import { expressLimit, fastifyLimit, honoLimit } from '@weirlimit/client/middleware'
import { WeirThrottlerStorage } from '@weirlimit/client/nestjs-throttler'
import { RateLimiterWeir } from '@weirlimit/client/rate-limiter-flexible'
import { rateLimit, type Store } from 'express-rate-limit'
import { fastify } from 'fastify'
import { Hono } from 'hono'
import { rateLimiter } from 'hono-rate-limiter'

const weir = new Weir('weir://127.0.0.1:6380/shop', { outage: 'closed', share: 0.25, tls: { ca: 'PEM' }, log: line => line.length })
new Weir({ token: 't' })
const charges: Charges = [['a', '10/s', 3], ['b', '5/s']]
const d: Decision = await weir.take('a', ['10/s', '1000/day'] as const, { cost: 2, id: 'x' })
await weir.take({ a: '10/s', b: ['1/s', '5/min'] }, { upTo: 5 })
await weir.take(charges)
const seconds: number = d.never ? NEVER : d.retryAfter + d.limits[0]!.remaining
const tokens: number = await weir.hold('a', '10/s', { cost: 800 }, async hold => { await hold.settle([1]); return seconds })
const length: string = await weir.hold(charges, () => 'done')
const hold: Hold = await weir.hold('a', '10/s', { ttlMs: 1000 })
await hold.renew()
const login: (user: string) => Promise<number> = weir.limit('5/min', { key: (user: string) => user, cost: 1 }, (user: string) => user.length + tokens + length.length)
await login('ann').catch((error: unknown) => error instanceof Refused ? error.decision.retryAfterMs : error instanceof Ambiguous || (error as WeirError).code)
// @ts-expect-error: a limit is a text
await weir.take('a', 5)
// @ts-expect-error: there is no such policy
new Weir({ outage: 'maybe' })

const store: Store = new WeirStore({ weir, prefix: 'a:' })
rateLimit({ store })
new Hono().use(rateLimiter({ keyGenerator: () => 'k', store: new WeirStore() })).use(honoLimit(weir, c => ({ [c.req.path]: '5/s' })))
expressLimit(weir, request => request.url === '/' ? null : { [String(request.socket.remoteAddress)]: '5/s' })
fastify().addHook('onRequest', fastifyLimit(weir, request => ({ [request.ip]: '5/s' })))
const storage: ThrottlerStorage = new WeirThrottlerStorage({ weir })
ThrottlerModule.forRoot({ throttlers: [{ ttl: 1, limit: 1 }], storage })
const limiter = new RateLimiterWeir({ storeClient: weir, points: 3, duration: 5 })
const points: number = (await limiter.consume('k')).consumedPoints
const limited: typeof fetch = limitedFetch(weir, url => url.host === 'h' && { provider: '60/min' }, { waitMs: points })
await limited('http://h').catch((error: unknown) => error instanceof RequestRefused && error.decision?.retryAfterMs)
