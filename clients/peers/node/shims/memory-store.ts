// The store that the suite of express-rate-limit tests, over Weir. Each has keys of its own, as stores in memory have. The server's clock goes
// with that of the suite, which stands still and leaps.
import { WeirStore } from '@weirlimit/client/express-rate-limit'
import { client, follow } from './server'

let stores = 0

export class MemoryStore extends WeirStore {
  constructor() {
    super({ weir: client(), prefix: `erl:${process.pid}:${Date.now()}:${++stores}:` })
  }

  async get(key: string) { await follow(); return super.get(key) }
  async increment(key: string) { await follow(); return super.increment(key) }
  async decrement(key: string) { await follow(); return super.decrement(key) }
  async resetKey(key: string) { await follow(); return super.resetKey(key) }
}
