// What the adapters have in common.
import { createHash } from 'node:crypto'

const longestKey = 512 // bytes; longer ones, which clients may send, go by their hash

export function keyOf(key) {
  const text = String(key)
  return Buffer.byteLength(text) <= longestKey ? text : 'sha256:' + createHash('sha256').update(text).digest('hex')
}

export const counterMost = 4294967295

// used returns what a counter has counted, after units of this call. A policy for outages has no count: it is as if these were
// the first, or far beyond any limit.
export function used(d, units) {
  if (d.source === 'client_open') return units
  return counterMost - d.remaining
}

export const tooMany = 'Too many requests.\n'
