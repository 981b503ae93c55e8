// The storage that the suites of @nestjs/throttler test, over Weir. Each has keys of its own, as those in memory have.
import { WeirThrottlerStorage } from '@weirlimit/client/nestjs-throttler'
import { client } from './server'

let storages = 0

export class ThrottlerStorageService extends WeirThrottlerStorage {
  constructor() {
    super({ weir: client(), prefix: `nest:${process.pid}:${Date.now()}:${++storages}:` })
  }
}
