import { randomUUID } from 'node:crypto'
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import tls from 'node:tls'
import { Connection } from './connection.js'
import { Decision } from './decision.js'
import { Forbidden, NotCharged, Refused, Unavailable } from './errors.js'
import { Local } from './local.js'
import { now } from './timers.js'
import { chargesOf, command, encode } from './wire.js'

const outages = ['local', 'open', 'closed', 'raise']
const pauseMs = 500 // without an attempt after a failure
const checkMs = 5000 // a server lets wrong credentials wait
const longestSleep = 2 ** 31 - 1

export class Weir {
  #connection
  #options // of connections
  #where
  #prefix
  #domain
  #outage
  #local
  #log
  #retryAt = -Infinity
  #loggedAt = -Infinity

  constructor(url, options) {
    if (url !== null && typeof url === 'object' && !(url instanceof URL)) [url, options] = [undefined, url]
    const {
      token, domain, timeoutMs = 250, prefix = '', outage = 'local', share = 0.5, maxPending = 10000, tls: secure,
      log = message => console.warn(`weir: ${message}`),
    } = options ?? {}
    const to = address(String(url ?? (process.env.WEIR_URL || 'weir://127.0.0.1:6380')))
    if (!outages.includes(outage)) throw new RangeError(`outage is ${JSON.stringify(outage)}: want ${outages.join(', ')}`)
    if (!(share > 0 && share <= 1)) throw new RangeError(`share is ${share}: want above 0 and at most 1`)
    if (!(timeoutMs > 0)) throw new RangeError(`timeoutMs is ${timeoutMs}: want milliseconds above 0`)
    if (!(maxPending >= 1)) throw new RangeError(`maxPending is ${maxPending}: want 1 or more`)
    const secret = token ?? to.token
    this.#where = to.where
    this.#domain = domain ?? to.domain
    this.#prefix = prefix
    this.#outage = outage
    this.#local = new Local(share)
    this.#log = log
    this.#options = {
      connect: () => {
        if (!to.secure) return net.connect({ ...to.socket, noDelay: true })
        return tls.connect({ ...to.socket, servername: net.isIP(to.socket.host) ? '' : to.socket.host, ...secure }).setNoDelay()
      },
      // Its answer says that this is Weir, before a command leaves.
      greeting: encode(!secret ? ['PING'] : to.caller ? ['AUTH', to.caller, secret] : ['AUTH', secret]),
      timeoutMs, maxPending,
    }
    this.#connection = new Connection(this.#options)
  }

  async #do(verb, charges, cost, options = {}) {
    const { id, holdMs, upTo, keep } = options
    const text = command(verb, this.#prefix, charges, cost, keep, [['ID', id], ['HOLD', holdMs], ['UPTO', upTo], ['IN', this.#domain || undefined]])
    if (this.#outage !== 'raise' && now() < this.#retryAt) {
      return this.#without(verb, charges, cost, options, new NotCharged('the server could not be reached a moment ago', 'NOTCHARGED'))
    }
    let reply
    try {
      reply = await this.#connection.call(text, id !== undefined)
    } catch (error) {
      // A full queue says nothing about the server.
      if (!error.full) this.#retryAt = now() + pauseMs
      return this.#without(verb, charges, cost, options, error)
    }
    if (!(reply instanceof Error)) return new Decision(reply)
    if (reply instanceof Unavailable) this.#retryAt = now() + pauseMs
    else if (!(reply instanceof Forbidden)) throw reply
    return this.#without(verb, charges, cost, options, reply)
  }

  // #without decides a take or a peek without the server, by policy.
  #without(verb, charges, cost, options, why) {
    const peek = verb === 'WEIR.PEEK'
    if (!(peek || verb === 'WEIR.TAKE') || this.#outage === 'raise') throw why
    if (now() - this.#loggedAt >= 60000) {
      this.#loggedAt = now()
      this.#log(`no decision from ${this.#where}: ${why.message}; until it answers: outage ${this.#outage}`)
    }
    cost ??= peek ? 0 : 1
    if (this.#outage === 'local') return this.#local.take(charges, cost, { ...options, peek })
    const granted = this.#outage === 'open'
    return new Decision([+granted, 0, granted ? 0 : 1000, 0, granted && !peek ? options.upTo ?? cost : 0, 0, 0, `client_${this.#outage}`, 0, 0, 0])
  }

  async check() {
    const { timeoutMs } = this.#options
    const connection = new Connection({ ...this.#options, timeoutMs: Math.max(timeoutMs, checkMs) })
    const reply = await connection.call(command('WEIR.PEEK', this.#prefix, [['check', '1/s']], undefined, undefined, [['IN', this.#domain || undefined]]), true)
    await connection.close()
    if (reply instanceof Error) throw reply
    this.#retryAt = -Infinity
  }

  async take(keys, limits, options) {
    const [charges, { cost, id, upTo, keep }] = chargesOf(keys, limits, options)
    return this.#do('WEIR.TAKE', charges, cost, { id, upTo, keep })
  }

  async peek(keys, limits, options) {
    const [charges, { cost }] = chargesOf(keys, limits, options)
    return this.#do('WEIR.PEEK', charges, cost || undefined)
  }

  async refund(keys, limits, options) {
    const [charges, { cost = 1, id }] = chargesOf(keys, limits, options)
    return this.#do('WEIR.REFUND', charges, cost, { id })
  }

  async record(keys, limits, options) {
    const [charges, { cost = 1 }] = chargesOf(keys, limits, options)
    return this.#do('WEIR.RECORD', charges, cost)
  }

  async reset(keys, limits) {
    const [charges] = chargesOf(keys, limits)
    return this.#do('WEIR.RESET', withoutCosts(charges))
  }

  async wait(keys, limits, options) {
    const [charges, { cost, keep, timeoutMs = 30000, signal }] = chargesOf(keys, limits, options)
    const until = now() + timeoutMs
    for (;;) {
      signal?.throwIfAborted()
      const d = await this.#do('WEIR.TAKE', charges, cost, { keep })
      if (d.allowed) return d
      const ms = Math.max(d.retryAfterMs, 1)
      if (d.never || now() + ms > until) throw new Refused(d)
      await sleep(Math.min(ms, longestSleep), undefined, { signal }).catch(error => { throw signal?.aborted ? signal.reason : error })
    }
  }

  async hold(keys, limits, options, work) {
    const args = [limits, options, work].filter(a => typeof a !== 'function')
    work = [limits, options, work].find(a => typeof a === 'function')
    const [charges, { cost = 1, ttlMs = 60000, keep }] = chargesOf(keys, ...args)
    const id = randomUUID()
    const decision = await this.#do('WEIR.TAKE', charges, cost, { id, holdMs: ttlMs, keep })
    if (!decision.allowed) throw new Refused(decision)
    const hold = new Hold(decision, id, {
      settle: used => this.#end('WEIR.SETTLE', decision, id, used === undefined ? charges : charges.map(([key, limit], i) => [key, limit, Array.isArray(used) ? used[i] : used]), cost),
      release: () => this.#end('WEIR.RELEASE', decision, id, withoutCosts(charges)),
      renew: async () => {
        if (decision.source === 'client_local') this.#local.renew(id, ttlMs)
        else if (!decision.source.startsWith('client_')) await this.#do('WEIR.RENEW', withoutCosts(charges), undefined, { id, holdMs: ttlMs })
      },
    })
    if (work === undefined) return hold
    let result
    try {
      result = await work(hold)
    } catch (error) {
      if (!hold.ended) await hold.release().catch(late => this.#log(`a hold stays charged as estimated: ${late.message}`))
      throw error
    }
    if (!hold.ended) await hold.settle()
    return result
  }

  async #end(verb, decision, id, charges, cost) {
    if (decision.source.startsWith('client_')) {
      this.#local.release(id)
      return
    }
    try {
      await this.#do(verb, charges, cost, { id })
    } catch (error) {
      if (!(error instanceof Unavailable) || this.#outage === 'raise') throw error
      this.#log(`a hold stays charged as estimated: ${error.message}`)
    }
  }

  limit(limits, { key, cost }, work) {
    const weir = this
    return async function (...args) {
      const d = await weir.take(typeof key === 'function' ? key.apply(this, args) : key, limits, { cost })
      if (!d.allowed) throw new Refused(d)
      return work.apply(this, args)
    }
  }

  close() { return this.#connection.close() }

  [Symbol.asyncDispose]() { return this.close() }
}

export class Hold {
  #verbs

  constructor(decision, id, verbs) {
    this.decision = decision
    this.id = id
    this.ended = false
    this.#verbs = verbs
  }

  async settle(used) {
    this.ended = true
    await this.#verbs.settle(used)
  }

  async release() {
    this.ended = true
    await this.#verbs.release()
  }

  async renew() { await this.#verbs.renew() }

  async [Symbol.asyncDispose]() {
    if (!this.ended) await this.settle()
  }
}

function withoutCosts(charges) {
  return charges.map(([key, limit]) => [key, limit])
}

// address reads a URL. It never shows a token in an error.
function address(text) {
  let url
  try {
    url = new URL(text)
  } catch {
    // The error below names it.
  }
  const unix = url?.protocol === 'weir+unix:'
  if (!(unix && url.pathname.length > 1) && !(['weir:', 'weirs:'].includes(url?.protocol) && url.hostname !== '')) {
    throw new TypeError(`url is ${JSON.stringify(text.replace(/\/\/.*@/, '//'))}: want weir://HOST:PORT, weirs:// for TLS or weir+unix:///PATH`)
  }
  const caller = decodeURIComponent(url.username), token = decodeURIComponent(url.password)
  if (unix) {
    const path = decodeURIComponent(url.pathname)
    return { socket: { path }, where: path, secure: false, caller, token, domain: '' }
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1'), port = Number(url.port || 6380)
  return { socket: { host, port }, where: `${url.hostname}:${port}`, secure: url.protocol === 'weirs:', caller, token, domain: decodeURIComponent(url.pathname.slice(1)) }
}
