import { tooMany } from './adapters.js'

const text = { 'Content-Type': 'text/plain; charset=utf-8' }

export function expressLimit(weir, limits) {
  return async (request, response, next) => {
    try {
      const charges = await limits(request)
      if (!charges) return next()
      const d = await weir.take(charges)
      for (const [name, value] of Object.entries(d.headers)) response.setHeader(name, value)
      if (d.allowed) return next()
      response.writeHead(429, text).end(tooMany)
    } catch (error) {
      next(error)
    }
  }
}

export function fastifyLimit(weir, limits) {
  return async (request, reply) => {
    const charges = await limits(request)
    if (!charges) return
    const d = await weir.take(charges)
    reply.headers(d.headers)
    if (!d.allowed) return reply.code(429).headers(text).send(tooMany)
  }
}

export function honoLimit(weir, limits) {
  return async (c, next) => {
    const charges = await limits(c)
    if (!charges) return next()
    const d = await weir.take(charges)
    if (!d.allowed) return c.body(tooMany, 429, { ...text, ...d.headers })
    await next()
    for (const [name, value] of Object.entries(d.headers)) c.header(name, value)
  }
}
