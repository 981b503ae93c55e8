import { setTimeout as sleep } from 'node:timers/promises'
import { Refused } from './errors.js'
import { now } from './timers.js'

const mostHosts = 1000

export class RequestRefused extends Error {
  constructor(message, decision = null, options) {
    super(message, options)
    this.name = 'RequestRefused'
    this.decision = decision
  }
}

export function limitedFetch(weir, limits, { waitMs = 30000, fetch = globalThis.fetch } = {}) {
  const until = new Map() // when hosts that asked for no request may get one
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input)
    const charges = await limits(url, init)
    if (!charges) return fetch(input, init)
    const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined)
    const pause = Math.max(0, (until.get(url.host) ?? 0) - now())
    if (pause > waitMs) throw new RequestRefused(`refused: ${url.host} asked to retry after ${Math.ceil(pause / 1000)} s`)
    if (pause > 0) await sleep(pause, undefined, { signal }).catch(error => { throw signal?.aborted ? signal.reason : error })
    try {
      await weir.wait(charges, { timeoutMs: waitMs - pause, signal })
    } catch (error) {
      throw error instanceof Refused ? new RequestRefused(error.message, error.decision, { cause: error }) : error
    }
    const response = await fetch(input, init)
    const ms = response.status === 429 || response.status === 503 ? retryAfter(response.headers.get('Retry-After')) : 0
    if (ms > 0) {
      until.delete(url.host)
      until.set(url.host, now() + ms)
      if (until.size > mostHosts) until.delete(until.keys().next().value)
    }
    return response
  }
}

// retryAfter returns milliseconds; 0 if a header says none.
function retryAfter(text) {
  if (text === null) return 0
  if (/^[0-9]{1,9}$/.test(text)) return Number(text) * 1000
  return Math.max(0, Date.parse(text) - Date.now()) || 0
}
