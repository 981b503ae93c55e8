import { counterMost, keyOf, used } from './adapters.js'
import { Weir } from './client.js'
import { Unavailable } from './errors.js'

export class WeirStore {
  localKeys = false
  #weir
  #limit
  #windowMs

  constructor({ weir = new Weir(), prefix = 'rl:' } = {}) {
    this.#weir = weir
    this.prefix = prefix
    this.init({ windowMs: 60000 })
  }

  init({ windowMs }) {
    if (!(Number.isInteger(windowMs) && windowMs >= 1)) throw new RangeError(`windowMs is ${windowMs}: want whole milliseconds from 1 on`)
    this.#windowMs = windowMs
    this.#limit = `counter/${windowMs}ms`
  }

  #key(key) { return this.prefix + keyOf(key) }

  #info(d, units) {
    return { totalHits: used(d, units), resetTime: new Date(Date.now() + (d.count > 0 || d.resetAfterMs > 0 ? d.resetAfterMs : this.#windowMs)) }
  }

  async get(key) {
    const d = await this.#weir.peek(this.#key(key), this.#limit)
    return d.remaining === counterMost && d.resetAfterMs === 0 ? undefined : this.#info(d, 0)
  }

  async increment(key) { return this.#info(await this.#weir.take(this.#key(key), this.#limit), 1) }

  async decrement(key) {
    try {
      await this.#weir.refund(this.#key(key), this.#limit)
    } catch (error) {
      // Nothing that the server knows of is too much.
      if (!(error instanceof Unavailable)) throw error
    }
  }

  async resetKey(key) { await this.#weir.reset(this.#key(key), this.#limit) }
}
