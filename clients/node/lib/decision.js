export const NEVER = 2147483647

const seconds = ms => Math.ceil(ms / 1000)

export class Decision {
  #reply

  constructor(reply) {
    this.allowed = reply[0] === 1
    this.remaining = reply[1]
    this.retryAfterMs = reply[2]
    this.resetAfterMs = reply[3]
    this.granted = reply[4]
    this.delayMs = reply[5]
    this.index = reply[6]
    this.source = reply[7]
    this.count = reply[8]
    this.periodMs = reply[9]
    this.burst = reply[10]
    this.#reply = reply
  }

  get limits() {
    const r = this.#reply
    const state = i => ({ allowed: r[i] === 1, remaining: r[i + 1], retryAfterMs: r[i + 2], resetAfterMs: r[i + 3], granted: r[i + 4] })
    if (r.length <= 11) return [state(0)]
    const all = []
    for (let i = 11; i < r.length; i += 5) all.push(state(i))
    return all
  }

  get never() { return this.retryAfterMs < 0 }

  get retryAfter() { return this.never ? NEVER : seconds(this.retryAfterMs) }

  get headers() {
    const found = {}
    // A decision without a server knows no limit to show.
    if (this.periodMs > 0) {
      found['RateLimit-Policy'] = `"default";q=${this.count};w=${seconds(this.periodMs)}`
      found.RateLimit = `"default";r=${this.remaining};t=${seconds(this.resetAfterMs)}`
    }
    if (!this.allowed && !this.never) found['Retry-After'] = String(this.retryAfter)
    return found
  }
}
