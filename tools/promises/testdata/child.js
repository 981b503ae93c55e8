// Answers lines for rate-limiter-flexible: address of Redis, points, seconds.
const { RateLimiterRedis } = require('rate-limiter-flexible')
const { Redis } = require('ioredis')
const [, , address, points, duration] = process.argv
const [host, port] = address.split(':')
const client = new Redis({ host, port: +port })
client.on('error', () => {})
const limiter = new RateLimiterRedis({ storeClient: client, points: +points, duration: +duration })
require('readline').createInterface({ input: process.stdin }).on('line', async (line) => {
  const [id, key, cost] = line.split(' ')
  try {
    await limiter.consume(Buffer.from(key, 'base64').toString('latin1'), +cost)
    console.log(id, 'granted', 0)
  } catch (e) {
    if (e instanceof Error) console.log(id, 'error', e.message.replace(/\s+/g, ' '))
    else console.log(id, 'refused', e.msBeforeNext)
  }
}).on('close', () => process.exit(0))
console.log('ready')
