import { type IRateLimiterStoreOptions, RateLimiterStoreAbstract } from 'rate-limiter-flexible'
import type { Weir } from './index.js'

/**
 * A limiter of rate-limiter-flexible. `storeClient` is a `Weir`, by default `new Weir()`. Durations are above 0; `reward` never
 * returns more points than were consumed. Rewards, blocks, `set` and `delete` need the permission to refund.
 */
export class RateLimiterWeir extends RateLimiterStoreAbstract {
  constructor(options: Omit<IRateLimiterStoreOptions, 'storeClient'> & { storeClient?: Weir })
}
