import RateLimiterRes from 'rate-limiter-flexible/lib/RateLimiterRes.js'
import RateLimiterStoreAbstract from 'rate-limiter-flexible/lib/RateLimiterStoreAbstract.js'
import { counterMost, keyOf, used } from './adapters.js'
import { Weir } from './client.js'

const unitMs = 100 // of a set key's time
// The longest period there is. It is only read by: a set key is written by its own, and forgotten after that.
const longestMs = 366 * 24 * 3600 * 1000
const setPoints = `set=counter/${longestMs}ms`, setFor = `setfor=counter/${longestMs}ms`

export class RateLimiterWeir extends RateLimiterStoreAbstract {
  constructor(options = {}) {
    super(options)
    this.client = options.storeClient ?? new Weir()
    milliseconds(this.duration * 1000)
  }

  _getRateLimiterRes(key, changed, { points, ms }) {
    return new RateLimiterRes(Math.max(this.points - points, 0), ms, points, points === changed)
  }

  // A key has a counter of points. While it is set or blocked for another time than a window, it has two more: the points that it
  // was set to, and for how long. They are read together with the first, in one act.
  async _upsert(key, points, ms, force = false) {
    points = whole(points)
    milliseconds(ms)
    key = keyOf(key)
    const counter = `points=counter/${ms}ms`
    if (force) return this.#set(key, points, ms, counter)
    if (points < 0) {
      // The commands leave together, and are carried out in this order.
      const [, d] = await Promise.all([this.client.refund(key, counter, { cost: -points }), this.client.peek([[key, counter], [key, setPoints], [key, setFor]])])
      return this.#state(d, 0, ms)
    }
    const d = await this.client.take([[key, counter, points], [key, setPoints, 0], [key, setFor, 0]])
    const state = this.#state(d, points, ms)
    // What a blocked key asks for is not counted beyond its block.
    if (state.set && state.points > this.points && points > 0) await this.client.refund(key, counter, { cost: points })
    return state
  }

  async #set(key, points, ms, counter) {
    const windowMs = this.duration * 1000
    const reset = this.client.reset([[key, `points=counter/${windowMs}ms`], [key, setPoints], [key, setFor]])
    const record = ms === windowMs
      ? this.client.record(key, counter, { cost: points })
      : this.client.record([[key, `set=counter/${ms}ms`, points], [key, `setfor=counter/${ms}ms`, Math.ceil(ms / unitMs)]])
    await Promise.all([reset, record])
    return { points, ms }
  }

  // #state reads an answer about the three counters. Without a server there is but the first.
  #state(d, points, ms) {
    if (d.source.startsWith('client_')) {
      const counted = used(d, points)
      return { points: counted, ms: d.resetAfterMs || ms, set: false, none: counted === 0 }
    }
    const [counted, set, time] = d.limits.map(s => ({ used: counterMost - s.remaining, resetAfterMs: s.resetAfterMs }))
    const left = time.used === 0 ? 0 : time.used * unitMs - (longestMs - time.resetAfterMs)
    if (left > 0) return { points: set.used + counted.used, ms: left, set: true }
    return { points: counted.used, ms: counted.resetAfterMs || ms, set: false, none: counted.used === 0 && counted.resetAfterMs === 0 }
  }

  async _get(key) {
    key = keyOf(key)
    const ms = this.duration * 1000
    const state = this.#state(await this.client.peek([[key, `points=counter/${ms}ms`], [key, setPoints], [key, setFor]]), 0, ms)
    return state.none ? null : state
  }

  async _delete(key) {
    const found = await this._get(key)
    key = keyOf(key)
    await this.client.reset([[key, `points=counter/${this.duration * 1000}ms`], [key, setPoints], [key, setFor]])
    return found !== null
  }
}

function whole(points) {
  const n = typeof points === 'string' && /^[0-9]+$/.test(points) ? Number(points) : points
  if (!Number.isSafeInteger(n)) throw new TypeError(`points are ${points}: want a whole number`)
  return n
}

function milliseconds(ms) {
  if (!(Number.isInteger(ms) && ms >= 1 && ms <= longestMs)) throw new RangeError(`duration is ${ms / 1000}: want seconds above 0, at most ${longestMs / 1000}: no key is kept for ever`)
}
