import { Weir } from '@weirlimit/client'

const fetch = globalThis.fetch
let weir: Weir | undefined
let seen = Date.now()

export function client() {
  return weir ??= new Weir({ timeoutMs: 30000, outage: 'raise' })
}

// follow moves the server's clock, which stands, on by what the time of this process has.
export async function follow() {
  const forward = Date.now() - seen
  seen += forward
  if (forward > 0) await fetch(`${process.env.WEIR_CLOCK}/?forward=${forward}ms`, { method: 'POST' })
}
