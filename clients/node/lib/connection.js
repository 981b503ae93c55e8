import { Ambiguous, Forbidden, NotCharged, Unavailable } from './errors.js'
import { clearTimeout, now, setImmediate, setTimeout } from './timers.js'
import { Parser } from './wire.js'

const mostBytes = 16 << 20 // that wait to be written
const busyMs = 10

// A Connection sends commands and gives each its reply. It opens itself for the first command, and again after a loss. Commands of one
// turn of the event loop go out in one write. None is sent twice unless it may be.
export class Connection {
  #connect
  #greeting
  #timeoutMs
  #maxPending
  #socket = null
  #ready = false // the server has answered the greeting
  #unsent = [] // calls, oldest first
  #unsentBytes = 0
  #sent = []
  #head = 0 // of #sent
  #scheduled = false
  #timer = null
  #drained = []

  constructor({ connect, greeting, timeoutMs, maxPending }) {
    this.#connect = connect
    this.#greeting = greeting
    this.#timeoutMs = timeoutMs
    this.#maxPending = maxPending
  }

  get #pending() { return this.#sent.length - this.#head + this.#unsent.length }

  // call sends a command and returns its reply; an error of the server is a value. It rejects if no reply came. A command that
  // may be repeated is sent again, once, if the connection is lost.
  call(text, repeat) {
    if (this.#pending >= this.#maxPending || this.#unsentBytes + (this.#socket?.writableLength ?? 0) > mostBytes) {
      const full = new NotCharged(`${this.#pending} calls wait for replies: want fewer`, 'NOTCHARGED')
      full.full = true
      return Promise.reject(full)
    }
    return new Promise((resolve, reject) => {
      this.#unsent.push({ text, repeat, resolve, reject, at: 0, left: false, excused: false })
      this.#unsentBytes += text.length
      this.#schedule()
    })
  }

  #schedule() {
    if (this.#scheduled) return
    this.#scheduled = true
    const leave = () => {
      this.#scheduled = false
      // Time counts from here: what the program does before it returns to the event loop is none of the server's.
      const at = now()
      for (let i = this.#unsent.length - 1; i >= 0 && this.#unsent[i].at === 0; i--) this.#unsent[i].at = at
      this.#flush()
    }
    // With a poll in between, a connection that the server has closed by now is noticed before the write. A busy one has just been read.
    const idle = this.#ready && this.#head === this.#sent.length
    setImmediate(idle ? () => setImmediate(leave) : leave)
  }

  #flush() {
    if (this.#unsent.length === 0) return
    if (this.#socket === null) this.#open()
    this.#watch()
    if (!this.#ready) return
    let out = ''
    for (const call of this.#unsent) {
      out += call.text
      if (!call.repeat) call.text = ''
      call.left = true
      this.#sent.push(call)
    }
    this.#unsent = []
    this.#unsentBytes = 0
    this.#socket.ref()
    this.#socket.write(out)
  }

  #open() {
    const parser = new Parser()
    let socket
    try {
      socket = this.#connect()
    } catch (error) {
      this.#fail(this.#unsent.splice(0), error)
      return
    }
    this.#socket = socket
    this.#ready = false
    const gone = error => this.#lost(socket, error)
    socket.on('data', data => {
      try {
        parser.feed(data, reply => this.#reply(socket, reply))
      } catch (error) {
        gone(error)
      }
    })
    socket.on('error', gone)
    socket.on('end', () => gone(new Error('the server closed the connection')))
    socket.on('close', () => gone(new Error('the connection was closed')))
    socket.write(this.#greeting)
  }

  #reply(socket, reply) {
    if (this.#socket !== socket) return
    if (!this.#ready) {
      if (reply instanceof Error) {
        this.#lost(socket, reply)
        return
      }
      this.#ready = true
      this.#flush()
      this.#rest()
      return
    }
    const call = this.#sent[this.#head]
    if (call === undefined) throw new Unavailable('a reply without a command')
    this.#sent[this.#head++] = undefined
    if (this.#head === this.#sent.length) {
      this.#sent = []
      this.#head = 0
    } else if (this.#head >= 4096) {
      this.#sent = this.#sent.slice(this.#head)
      this.#head = 0
    }
    call.resolve(reply)
    this.#rest()
  }

  // #rest lets the process end, and close continue, while no call waits.
  #rest() {
    if (this.#pending > 0) return
    this.#socket?.unref()
    clearTimeout(this.#timer)
    this.#timer = null
    for (const done of this.#drained.splice(0)) done()
  }

  // #lost closes the connection. Calls that never left, and those that may be sent twice, go on another one, but for a server that
  // did not answer the greeting, or in time.
  #lost(socket, error, late = false) {
    if (this.#socket !== socket) return
    const greeted = this.#ready
    this.#socket = null
    this.#ready = false
    socket.destroy()
    const sent = this.#sent.slice(this.#head), again = []
    this.#sent = []
    this.#head = 0
    const failed = sent.filter(call => {
      if (late || !call.repeat) return true
      call.repeat = false
      again.push(call)
      return false
    })
    this.#unsent = [...again, ...this.#unsent]
    if (!greeted) failed.push(...this.#unsent.splice(0))
    this.#unsentBytes = this.#unsent.reduce((n, call) => n + call.text.length, 0)
    this.#fail(failed, error)
    if (this.#unsent.length > 0) this.#schedule()
  }

  #fail(calls, error) {
    for (const call of calls) {
      if (call.left) call.reject(new Ambiguous(`no decision: ${error.message}`, 'AMBIGUOUS', { cause: error }))
      else if (error instanceof Forbidden) call.reject(error)
      else call.reject(new NotCharged(`no decision: ${error.message || error.code}`, 'NOTCHARGED', { cause: error }))
    }
    this.#rest()
  }

  // #watch sets one timer for all calls: the oldest one without a reply tells whether the server answers.
  #watch() {
    const oldest = this.#sent[this.#head] ?? this.#unsent[0]
    if (this.#timer !== null || oldest === undefined || oldest.at === 0) return
    const due = Math.max(oldest.at + this.#timeoutMs, now()) + 1
    this.#timer = setTimeout(() => {
      // A reply may have come while the program kept the event loop busy: it is read before what follows.
      setImmediate(() => {
        this.#timer = null
        if (now() - due > busyMs) this.#excuse()
        const oldest = this.#sent[this.#head] ?? this.#unsent[0]
        if (oldest === undefined || oldest.at === 0) return
        if (this.#socket !== null && now() - oldest.at >= this.#timeoutMs) {
          const missing = this.#ready ? 'reply' : this.#socket.connecting ? 'connection' : 'answer to the greeting'
          this.#lost(this.#socket, new Error(`no ${missing} within ${this.#timeoutMs} ms`), true)
        }
        this.#watch()
      })
    }, due - now())
  }

  // #excuse gives calls their whole time again, once, because the program kept the event loop busy.
  #excuse() {
    const at = now()
    for (const calls of [this.#sent.slice(this.#head), this.#unsent]) {
      for (const call of calls) {
        if (call.excused || call.at === 0) continue
        call.excused = true
        call.at = at
      }
    }
  }

  // close waits for replies, and then for the connection to end.
  async close() {
    if (this.#pending > 0) await new Promise(done => this.#drained.push(done))
    const socket = this.#socket
    if (socket === null) return
    this.#socket = null
    this.#ready = false
    socket.ref()
    const ended = new Promise(done => socket.once('close', done))
    socket.destroySoon()
    await ended
  }
}
