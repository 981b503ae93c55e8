import type { Weir } from './index.js'

/**
 * A storage for @nestjs/throttler: `ThrottlerModule.forRoot({ throttlers, storage: new WeirThrottlerStorage() })`. Requests are
 * counted in a sliding log; a block is a budget of its own. A `blockDuration` below `ttl` needs the permission to refund.
 */
export class WeirThrottlerStorage {
  /** @param options `weir`: default `new Weir()`. `prefix` goes before each key: default `throttler:`. */
  constructor(options?: { weir?: Weir, prefix?: string })
  increment(key: string, ttl: number, limit: number, blockDuration: number, throttlerName: string): Promise<{ totalHits: number, timeToExpire: number, isBlocked: boolean, timeToBlockExpire: number }>
}
