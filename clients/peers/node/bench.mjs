// Started by bench.
import { Weir } from '@weirlimit/client'
import { WeirStore } from '@weirlimit/client/express-rate-limit'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'
import { createInterface } from 'node:readline'
import { RedisStore } from 'rate-limit-redis'
import { createClient } from 'redis'

const rounds = Number(process.env.ROUNDS ?? 5), ms = 2000, calls = 100, keys = 1000

async function freePort() {
  const listener = net.createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address()
  listener.close()
  await once(listener, 'close')
  return port
}

const processes = []
process.on('exit', () => processes.forEach(p => p.kill()))

// start returns the first line of a program that match accepts.
async function start(program, args, match) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  processes.push(child)
  for await (const line of createInterface({ input: child.stdout })) {
    const found = match.exec(line)
    if (found) {
      child.stdout.resume()
      return found
    }
  }
  throw new Error(`${program} ended`)
}

const redisPort = await freePort()
await start('redis-server', ['--port', String(redisPort), '--save', ''], /Ready to accept/)
const serve = async store => (await start(process.env.WEIR, ['serve', '--store', store, '--http', '127.0.0.1:0', '--grpc', 'off', '--admin', 'off', '--resp', '127.0.0.1:0', '--log-level', 'error'], /^resp (\S+)/))[1]
const redis = await createClient({ url: `redis://127.0.0.1:${redisPort}` }).connect()
const weirs = await Promise.all(['memory', `redis://127.0.0.1:${redisPort}`].map(async store => new Weir(`weir://${await serve(store)}`, { timeoutMs: 30000, outage: 'raise' })))
const stores = {
  'rate-limit-redis': new RedisStore({ sendCommand: (...args) => redis.sendCommand(args) }),
  'WeirStore, memory': new WeirStore({ weir: weirs[0] }),
  'WeirStore, Redis': new WeirStore({ weir: weirs[1] }),
}
for (const store of Object.values(stores)) await store.init({ windowMs: 3600000 })

// measure returns increments a second, and microseconds of CPU for each.
async function measure(name, store) {
  const began = performance.now(), cpu = process.cpuUsage(), until = began + ms
  let n = 0
  await Promise.all(Array.from({ length: calls }, async () => {
    while (performance.now() < until) {
      await store.increment(`key${n++ % keys}`)
    }
  }))
  const { user, system } = process.cpuUsage(cpu)
  made.set(name, (made.get(name) ?? 0) + n)
  return [n / (performance.now() - began) * 1000, (user + system) / n]
}

const made = new Map() // increments of each store
const found = new Map(Object.keys(stores).map(name => [name, []]))
for (let round = -1; round < rounds; round++) {
  for (const [name, store] of Object.entries(stores)) {
    const figures = await measure(name, store)
    // The first round warms up.
    if (round >= 0) found.get(name).push(figures)
  }
}
for (const [name, store] of Object.entries(stores)) {
  let counted = 0
  for (let i = 0; i < keys; i++) counted += (await store.get(`key${i}`)).totalHits
  if (counted !== made.get(name)) throw new Error(`${name} counted ${counted} of ${made.get(name)}`)
}
const median = list => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)]
const [baseRate, baseCPU] = [0, 1].map(i => median(found.get('rate-limit-redis').map(f => f[i])))
console.log(`${calls} calls at once, ${keys} keys, medians of ${rounds} rounds of ${ms} ms that alternate`)
for (const [name, figures] of found) {
  const [rate, cpu] = [0, 1].map(i => median(figures.map(f => f[i])))
  console.log(`${name.padEnd(20)} ${Math.round(rate).toLocaleString('en')} increments/s (${(rate / baseRate).toFixed(2)}x)   ${cpu.toFixed(1)} µs CPU of the client each (${(cpu / baseCPU).toFixed(2)}x)`)
}
process.exit()
