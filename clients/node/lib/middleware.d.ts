import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Charges, Weir } from './index.js'

type Limited<T> = (request: T) => Charges | null | undefined | false | Promise<Charges | null | undefined | false>

/**
 * Middleware for Express and Connect: requests above their limits are answered with 429. `limits` returns a request's keys and
 * limits, which are taken together, or null for a request without a limit. An error goes to `next`.
 */
export function expressLimit<T extends IncomingMessage>(weir: Weir, limits: Limited<T>): (request: T, response: ServerResponse, next: (error?: unknown) => void) => Promise<void>

/** The same as a hook of Fastify: `app.addHook('onRequest', fastifyLimit(…))`, or `onRequest` of a route. */
export function fastifyLimit<T = any>(weir: Weir, limits: Limited<T>): (request: T, reply: any) => Promise<unknown>

/** The same as middleware of Hono. `limits` has its context. */
export function honoLimit<T = any>(weir: Weir, limits: Limited<T>): (c: T, next: () => Promise<void>) => Promise<any>
