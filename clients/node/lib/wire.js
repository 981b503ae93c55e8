// Commands and replies as text and bytes: the Redis protocol, version 2.
import { errorOf, Unavailable, WeirError } from './errors.js'

const mostLimits = 1000

// bulk encodes one argument.
function bulk(value) {
  const text = typeof value === 'string' ? value : String(value)
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`
}

export function encode(args) {
  let all = `*${args.length}\r\n`
  for (const a of args) all += bulk(a)
  return all
}

// whole returns a number of units or milliseconds; a part of one is a mistake.
export function whole(value, name) {
  if (!Number.isSafeInteger(value)) throw new WeirError(`${name} is ${show(value)}: want a whole number`)
  return value
}

function show(value) {
  return typeof value === 'string' ? JSON.stringify(value) : String(value)
}

// chargesOf reads the arguments of a method: a key and its limits, { key: limit } or
// [[key, limit, cost]], then options. It returns charges, [[key, limit, cost]], and the options.
export function chargesOf(keys, limits, options) {
  let charges
  if (typeof keys === 'string') {
    charges = (Array.isArray(limits) ? limits : limits === undefined ? [] : [limits]).map(limit => [keys, limit])
  } else {
    if (typeof limits === 'string' || Array.isArray(limits)) throw new WeirError(`limits are ${show(limits)}: want none beside several keys`)
    options = limits
    if (Array.isArray(keys)) {
      charges = keys
    } else if (keys !== null && typeof keys === 'object') {
      charges = Object.entries(keys).flatMap(([key, value]) => Array.isArray(value) ? value.map(limit => [key, limit]) : [[key, value]])
    } else {
      throw new WeirError(`key is ${show(keys)}: want a string, { key: limit } or [[key, limit]]`)
    }
  }
  if (charges.length === 0) throw new WeirError('limits are none: want at least one, such as "100/min"')
  for (let i = 0; i < charges.length; i++) {
    const c = charges[i]
    if (!Array.isArray(c) || typeof c[0] !== 'string') throw new WeirError(`limits[${i}].key is ${show(Array.isArray(c) ? c[0] : c)}: want a string`)
    if (typeof c[1] !== 'string') throw new WeirError(`limits[${i}].limit is ${show(c[1])}: want a limit such as "100/min"`)
  }
  return [charges, options ?? {}]
}

// A program has few limits, and sends them again and again.
const encoded = new Map()

function limit(text) {
  let found = encoded.get(text)
  if (found === undefined) {
    if (encoded.size >= mostLimits) encoded.delete(encoded.keys().next().value)
    encoded.set(text, found = bulk(text))
  }
  return found
}

const and = bulk('AND')

// command encodes a command. options are [name, value] pairs, of which undefined values are left out.
export function command(verb, prefix, charges, cost, keep, options) {
  let all = bulk(verb), n = 1
  for (let i = 0; i < charges.length; i++) {
    const [key, text, own] = charges[i], units = own ?? cost
    if (i > 0) { all += and; n++ }
    all += bulk(prefix + key) + limit(text)
    n += 2
    if (units !== undefined && !(units === 1 && verb === 'WEIR.TAKE')) { all += '$4\r\nCOST\r\n' + bulk(whole(units, 'cost')); n += 2 }
    if (keep !== undefined) { all += '$4\r\nKEEP\r\n' + bulk(whole(keep, 'keep')); n += 2 }
  }
  for (const [name, value] of options) {
    if (value !== undefined) { all += bulk(name) + bulk(value); n += 2 }
  }
  return `*${n}\r\n${all}`
}

const CR = 13, LF = 10, mostBytes = 1 << 16

// A Parser splits what a connection sends into replies. An error of the server is a value.
export class Parser {
  #rest = null
  #at = 0

  // feed calls found with each reply that is complete with data.
  feed(data, found) {
    const buffer = this.#rest === null ? data : Buffer.concat([this.#rest, data])
    this.#rest = null
    this.#at = 0
    let done = 0
    while (done < buffer.length) {
      const reply = this.#parse(buffer)
      if (reply === undefined) break
      done = this.#at
      found(reply)
    }
    if (buffer.length - done > mostBytes) throw new Unavailable('a reply is too long: want that of Weir\'s RESP listener')
    if (done < buffer.length) this.#rest = buffer.subarray(done)
  }

  // #parse returns the reply at #at, which moves behind it, or undefined if it is incomplete.
  #parse(buffer) {
    const begin = this.#at, end = buffer.indexOf(CR, begin)
    const kind = buffer[begin]
    if (kind < 42 || kind > 58) throw new Unavailable(`${JSON.stringify(buffer.toString('latin1', begin, begin + 40))} is no reply of Weir: want its RESP listener`)
    if (end < 0 || end + 1 >= buffer.length) return undefined
    if (buffer[end + 1] !== LF) throw new Unavailable('a reply has CR without LF: want that of Weir\'s RESP listener')
    this.#at = end + 2
    switch (kind) {
      case 58: // :
        return integer(buffer, begin + 1, end)
      case 42: { // *
        const n = integer(buffer, begin + 1, end), all = []
        for (let i = 0; i < n; i++) {
          const value = this.#parse(buffer)
          if (value === undefined) return undefined
          all.push(value)
        }
        return all
      }
      case 43: // +
        return buffer.utf8Slice(begin + 1, end)
      case 45: // -
        return errorOf(buffer.utf8Slice(begin + 1, end))
    }
    throw new Unavailable(`${JSON.stringify(buffer.toString('latin1', begin, begin + 40))} is no reply of Weir: want its RESP listener`)
  }
}

function integer(buffer, from, to) {
  const negative = buffer[from] === 45
  let n = 0
  for (let i = negative ? from + 1 : from; i < to; i++) {
    const digit = buffer[i] - 48
    if (digit < 0 || digit > 9) throw new Unavailable('a number of a reply has other characters than digits: want Weir\'s RESP listener')
    n = n * 10 + digit
  }
  return negative ? -n : n
}
