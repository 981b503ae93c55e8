// The commands and replies of ../../cases.json.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Decision, Weir, WeirError } from '../lib/index.js'
import { errorOf } from '../lib/errors.js'
import { encode, Parser } from '../lib/wire.js'
import { Server } from './fake.js'

const steps = JSON.parse(readFileSync(new URL('../../cases.json', import.meta.url), 'utf8')).resp
  .flatMap(c => c.steps.filter(s => s.send).map(s => ({ ...s, name: `${c.name}: ${s.send.join(' ')}` })))

function bytes(step) {
  if (step.error) return `-${step.error}\r\n`
  return `*${step.reply.length}\r\n` + step.reply.map(v => typeof v === 'number' ? `:${v}\r\n` : `+${v}\r\n`).join('')
}

function read(data, size) {
  const parser = new Parser(), found = []
  for (let at = 0; at < data.length; at += size) parser.feed(data.subarray(at, at + size), reply => found.push(reply))
  return found
}

test('all replies are read, in whatever parts they come', () => {
  for (const step of steps) {
    const data = Buffer.from(bytes(step))
    for (const size of [1, 5, 10000]) {
      const [reply, ...more] = read(data, size)
      assert.equal(more.length, 0, step.name)
      if (step.error) {
        assert.ok(reply instanceof WeirError, step.name)
        continue
      }
      assert.deepEqual(reply, step.reply, step.name)
      assert.equal(new Decision(reply).limits.length, step.send.filter(a => a === 'AND').length + 1, step.name)
    }
  }
  assert.equal(read(Buffer.concat(steps.map(s => Buffer.from(bytes(s)))), 777).length, steps.length)
})

test('what is no reply of Weir is an error', () => {
  for (const text of ['HTTP/1.1 400\r\n\r\n', '$5\r\nhello\r\n', ':1\rx', ':1x\r\n', '*1\r\n+' + 'x'.repeat(70000)]) {
    assert.throws(() => read(Buffer.from(text), 10000), /want/, text.slice(0, 20))
  }
})

// call returns the method that sends the command of a step, and its arguments; undefined if none does.
function call({ send: [verb, ...args] }) {
  const name = verb.replace('WEIR.', '').toLowerCase()
  if (!['WEIR.TAKE', 'WEIR.PEEK', 'WEIR.REFUND', 'WEIR.RECORD', 'WEIR.RESET'].includes(verb)) return
  const charges = [], options = {}
  for (let i = 0; i < args.length;) {
    if (i > 0 && args[i] === 'AND') i++
    else if (i > 0) {
      const value = args[i + 1]
      if (args[i] === 'COST' && /^[0-9]+$/.test(value)) charges.at(-1).push(Number(value))
      else if (args[i] === 'ID' && value !== undefined) options.id = value
      else if (args[i] === 'UPTO' && /^[0-9]+$/.test(value)) options.upTo = Number(value)
      else if (args[i] === 'KEEP' && charges.length === 1 && /^[0-9]+$/.test(value)) options.keep = Number(value)
      else return
      i += 2
      continue
    }
    if (args[i + 1] === undefined) return
    charges.push([args[i], args[i + 1]])
    i += 2
  }
  if (charges.some(c => c.length > 3) || (['refund', 'record'].includes(name) && charges.some(c => c.length < 3))) return
  if ((name === 'reset' && charges.some(c => c.length > 2)) || (name !== 'take' && options.keep !== undefined) || (name === 'record' && options.id)) return
  return [name, charges, options]
}

test('the client sends these commands', async t => {
  let reply
  const server = await Server.start(t, () => reply)
  const weir = new Weir(server.url, { timeoutMs: 60000 })
  t.after(() => weir.close())
  let checked = 0
  for (const step of steps) {
    const found = call(step)
    if (found === undefined) continue
    const [name, charges, options] = found
    reply = bytes(step)
    server.commands.length = 0
    const got = await weir[name](charges, options).catch(error => error)
    // The cost of a take is 1 without a word.
    const args = step.send.filter((a, i, all) => !(all[0] === 'WEIR.TAKE' && ((a === 'COST' && all[i + 1] === '1') || (all[i - 1] === 'COST' && a === '1'))))
    assert.deepEqual(server.commands, [encode(args)], step.name)
    if (step.error) {
      const want = errorOf(step.error)
      assert.deepEqual([got.constructor, got.message, got.code], [want.constructor, want.message, step.error.split(' ', 1)[0]], step.name)
    } else {
      const { allowed, remaining, retryAfterMs, resetAfterMs, granted, delayMs, index, source, count, periodMs, burst } = got
      assert.deepEqual([+allowed, remaining, retryAfterMs, resetAfterMs, granted, delayMs, index, source, count, periodMs, burst], step.reply.slice(0, 11), step.name)
    }
    checked++
  }
  assert.ok(checked > 100, `${checked} commands`)
})
