// The limiter and the client of Redis that the suite of rate-limiter-flexible tests, over Weir.
const Module = require('node:module')
const { Weir } = require('@weirlimit/client')
const { RateLimiterWeir } = require('@weirlimit/client/rate-limiter-flexible')

const weir = new Weir({ timeoutMs: 30000, outage: 'raise' })
let flushed = 0

class Client {
  #open = true
  #prefix = key => `rlf:${process.pid}:${flushed}:${key}`

  async #call(verb, keys, limits, options) {
    if (!this.#open) throw new Error('Connection is closed.')
    return typeof keys === 'string' ? weir[verb](this.#prefix(keys), limits, options) : weir[verb](keys.map(([key, ...rest]) => [this.#prefix(key), ...rest]), limits)
  }

  take(...args) { return this.#call('take', ...args) }
  peek(...args) { return this.#call('peek', ...args) }
  refund(...args) { return this.#call('refund', ...args) }
  record(...args) { return this.#call('record', ...args) }
  reset(...args) { return this.#call('reset', ...args) }

  async get(key) {
    const found = await new RateLimiterWeir({ storeClient: this, points: 1, duration: 86400 })._get(key)
    return found === null ? null : String(found.points)
  }

  async flushdb() { flushed++ }
  async connect() { this.#open = true }
  async disconnect() { this.#open = false }
}

const load = Module._load
Module._load = function (request, parent, ...rest) {
  if (request === 'ioredis') return Client
  if (request === '../lib/RateLimiterRedis') return RateLimiterWeir
  return load.call(this, request, parent, ...rest)
}
