export class WeirError extends Error {
  constructor(message, code = 'ERR', options) {
    super(message, options)
    this.name = new.target.name
    this.code = code
  }
}

export class Forbidden extends WeirError {}
export class UnknownID extends WeirError {}
export class IDReused extends WeirError {}
export class Settled extends WeirError {}
export class Unavailable extends WeirError {}
export class NotCharged extends Unavailable {}
export class Ambiguous extends Unavailable {}

export class Refused extends Error {
  constructor(decision) {
    super(decision.never ? 'refused: it never fits' : `refused: retry after ${decision.retryAfterMs} ms`)
    this.name = 'Refused'
    this.decision = decision
  }
}

// The first word of an error is its class. Its text may change.
const classes = {
  NOPERM: Forbidden, NOAUTH: Forbidden, WRONGPASS: Forbidden,
  UNKNOWNID: UnknownID, IDREUSED: IDReused, SETTLED: Settled,
  NOTCHARGED: NotCharged, AMBIGUOUS: Ambiguous,
}

// errorOf returns the error that a line of the server stands for.
export function errorOf(line) {
  const [word] = line.split(' ', 1)
  const text = line.slice(word.length + 1)
  if (Object.hasOwn(classes, word)) return new classes[word](text, word)
  return word === 'ERR' ? new WeirError(text) : new WeirError(line)
}
