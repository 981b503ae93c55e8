import { keyOf } from './adapters.js'
import { Weir } from './client.js'

const largestLog = 100000
const seconds = ms => Math.ceil(ms / 1000)

export class WeirThrottlerStorage {
  #weir
  #prefix

  constructor({ weir = new Weir(), prefix = 'throttler:' } = {}) {
    this.#weir = weir
    this.#prefix = prefix
  }

  // increment counts a request, unless it is refused or the key is blocked.
  async increment(key, ttl, limit, blockDuration, name) {
    key = `${this.#prefix}${name}:${keyOf(key)}`
    const ms = Math.max(1, Math.round(ttl)), blockMs = Math.round(blockDuration)
    const blocked = `blocked=1/${blockMs}ms fixed_window anchor first`
    const refused = (expire, blockExpire) => ({ totalHits: limit + 1, timeToExpire: seconds(expire), isBlocked: true, timeToBlockExpire: seconds(blockExpire) })
    if (limit < 1) return refused(ms, Math.max(ms, blockMs))
    if (blockMs > 0) {
      const d = await this.#weir.peek(key, blocked, { cost: 1 })
      if (!d.allowed) return refused(d.retryAfterMs, d.retryAfterMs)
    }
    const hits = `hits=${limit}/${ms}ms ${limit <= largestLog ? 'sliding_log' : 'rolling_window'}`
    const d = await this.#weir.take(key, hits)
    if (d.allowed) return { totalHits: Math.max(1, limit - d.remaining), timeToExpire: seconds(d.resetAfterMs || ms), isBlocked: false, timeToBlockExpire: 0 }
    if (blockMs <= 0) return refused(d.resetAfterMs || ms, d.retryAfterMs)
    const b = await this.#weir.take(key, blocked)
    // Hits that are older than the block are forgotten with its end.
    if (blockMs < ms && b.allowed && b.source === 'store') await this.#weir.reset(key, hits)
    return refused(d.resetAfterMs || ms, b.allowed ? blockMs : b.retryAfterMs)
  }
}
