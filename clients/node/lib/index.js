export { Hold, Weir } from './client.js'
export { NEVER, Decision } from './decision.js'
export { Ambiguous, Forbidden, IDReused, NotCharged, Refused, Settled, Unavailable, UnknownID, WeirError } from './errors.js'
