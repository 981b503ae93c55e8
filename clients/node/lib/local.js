// Decisions in an outage: this process enforces a share of each limit by itself.
import { Decision } from './decision.js'
import { now } from './timers.js'

const mostKeys = 10000, mostLimits = 1000
const counter = 4294967295
const second = 1000, minute = 60 * second, hour = 60 * minute, day = 24 * hour
const periods = {
  s: second, sec: second, second, m: minute, min: minute, minute, h: hour, hr: hour, hour, d: day, day, w: 7 * day, week: 7 * day,
  month: 30 * day, year: 365 * day,
}
const parts = { h: hour, m: minute, s: second, ms: 1, us: 1e-3, 'µs': 1e-3, ns: 1e-6 }

// period returns milliseconds, or undefined for a text that only the server reads.
function period(word) {
  if (Object.hasOwn(periods, word)) return periods[word]
  let all = 0, read = ''
  for (const [text, number, unit] of word.matchAll(/([0-9.]+)(ms|us|µs|ns|h|m|s)/g)) {
    all += Number(number) * parts[unit]
    read += text
  }
  return read === word && all > 0 ? all : undefined
}

// read returns the parts of a limit's text that a local decision needs, or null if only the server reads it.
function read(text) {
  const match = /^(?:([^=]*)=)?(counter|[0-9]+)\/(\S+)((?: \S+)*)$/.exec(text)
  if (match === null) return null
  const [, name, number, unit, rest] = match
  const ms = period(unit), words = rest.split(' ')
  if (ms === undefined) return null
  const count = number === 'counter' ? counter : Number(number)
  const burst = words.includes('burst') ? Number(words[words.indexOf('burst') + 1]) : count
  if (!(count >= 1 && burst >= 1)) return null
  return { budget: name ?? text, ms, count, burst, slots: words.includes('concurrency'), counts: number === 'counter' }
}

// A Bounded is a map that forgets its oldest entry rather than have more than most.
class Bounded extends Map {
  #most

  constructor(most) {
    super()
    this.#most = most
  }

  set(key, value) {
    this.delete(key)
    super.set(key, value)
    if (this.size > this.#most) this.delete(this.keys().next().value)
    return this
  }
}

// A Local enforces its share of each limit by GCRA, and of slots by counting their holders. A counter is kept in
// windows, and shows what all processes have used if each uses as much as this one.
export class Local {
  #share
  #now
  #limits = new Bounded(mostLimits)
  #due = new Bounded(mostKeys) // when nothing is used any more
  #used = new Bounded(mostKeys) // of counters: the units of a window, and its end
  #holders = new Bounded(mostKeys) // of slots: the ends of leases, by ID

  constructor(share, clock = now) {
    this.#share = share
    this.#now = clock
  }

  #limit(text) {
    let found = this.#limits.get(text)
    if (found === undefined) this.#limits.set(text, found = read(text))
    return found
  }

  // take decides all or none; a peek charges nothing. A limit in a form that only the server reads is not enforced.
  take(charges, cost, { id = '', keep = 0, upTo, holdMs, peek = false } = {}) {
    const now = this.#now()
    const plans = charges.map(([key, text, own]) => this.#plan(key, text, own, now)).filter(p => p !== null)
    let units = upTo ?? cost
    if (upTo !== undefined) {
      for (const p of plans) units = Math.min(units, Math.floor(p.room - keep * this.#share + 1e-9))
      units = Math.max(units, 1)
    }
    let wait = 0, never = false
    for (const p of plans) {
      p.units = p.size(p.own ?? units)
      const missing = p.units + keep * this.#share - p.room
      if (p.units === 0 || missing <= 1e-9) continue
      wait = Math.max(wait, p.wait(missing))
      never ||= p.units > p.burst
    }
    if (wait > 0 || peek) for (const p of plans) p.units = 0
    for (const p of plans) if (p.units > 0) p.charge(p.units, id, holdMs)
    const remaining = Math.max(0, Math.floor(Math.min(counter, ...plans.map(p => p.room - p.units)) + 1e-9))
    const reset = Math.ceil(Math.max(0, ...plans.map(p => p.reset(p.units))))
    if (wait > 0) return new Decision([0, remaining, never ? -1 : Math.ceil(wait), reset, 0, 0, 0, 'client_local', 0, 0, 0])
    return new Decision([1, remaining, 0, reset, peek ? 0 : units, 0, 0, 'client_local', 0, 0, 0])
  }

  // #plan returns the room of a limit, in units, and how to charge it.
  #plan(key, text, own, now) {
    const limit = this.#limit(text)
    if (limit === null) return null
    const name = `${key}\0${limit.budget}`
    if (limit.counts) {
      let used = this.#used.get(name)
      if (used === undefined || used.end <= now) used = { units: 0, end: now + limit.ms }
      const before = used.units
      return {
        own, size: n => n / this.#share, burst: counter, room: counter - before, reset: n => n + before > 0 ? used.end - now : 0, wait: () => used.end - now,
        charge: n => { used.units += n; this.#used.set(name, used) },
      }
    }
    const count = Math.max(1, limit.count * this.#share)
    if (limit.slots) {
      const holders = this.#holders.get(name) ?? new Map()
      for (const [id, end] of holders) if (end <= now) holders.delete(id)
      return {
        own, size: n => n, burst: Math.floor(count), room: Math.floor(count) - holders.size, reset: () => limit.ms, wait: () => second,
        charge: (_, id, holdMs) => { holders.set(id, now + (holdMs ?? limit.ms)); this.#holders.set(name, holders) },
      }
    }
    const each = limit.ms / count, burst = Math.max(1, limit.burst * this.#share)
    const due = Math.max(this.#due.get(name) ?? now, now)
    return {
      own, size: n => n, burst, room: burst - (due - now) / each, reset: n => due + n * each - now, wait: missing => missing * each,
      charge: n => { this.#due.set(name, due + n * each) },
    }
  }

  // release ends the slots of a hold that was granted here.
  release(id) {
    for (const [name, holders] of this.#holders) if (holders.delete(id) && holders.size === 0) this.#holders.delete(name)
  }

  // renew extends them.
  renew(id, ms) {
    for (const holders of this.#holders.values()) if (holders.has(id)) holders.set(id, this.#now() + ms)
  }
}
