// A server that answers as a test says.
import { once } from 'node:events'
import net from 'node:net'

export const replies = { granted: '*11\r\n:1\r\n:8\r\n:0\r\n:400000\r\n:1\r\n:0\r\n:0\r\n+store\r\n:9\r\n:3600000\r\n:9\r\n' }

export class Server {
  greetings = []
  commands = []
  #connections = new Set()

  // start serves until the test ends. answer returns the reply to a command, null for none, or 'close'.
  static async start(t, answer, greeting = '+PONG\r\n') {
    const s = new Server()
    s.listener = net.createServer({ noDelay: true }, connection => {
      s.#connections.add(connection)
      connection.on('close', () => s.#connections.delete(connection))
      connection.on('error', () => {})
      let greeted = false
      connection.on('data', data => {
        for (const command of commands(data.toString())) {
          if (!greeted) {
            greeted = true
            s.greetings.push(command)
            connection.write(greeting)
            continue
          }
          s.commands.push(command)
          const reply = answer(command)
          if (reply === 'close') {
            connection.destroy()
            return
          }
          if (reply === null) continue
          // In two parts, as networks may deliver it.
          connection.write(reply.slice(0, 7))
          connection.write(reply.slice(7))
        }
      })
    }).listen(0, '127.0.0.1')
    await once(s.listener, 'listening')
    s.url = `weir://127.0.0.1:${s.listener.address().port}`
    t.after(() => {
      s.listener.close()
      for (const connection of s.#connections) connection.destroy()
    })
    return s
  }
}

function commands(text) {
  return text.split(/(?=\*\d+\r\n\$\d+\r\n(?:WEIR|PING|AUTH))/)
}

// gone returns the URL of no server.
export async function gone() {
  const listener = net.createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address()
  listener.close()
  await once(listener, 'close')
  return `weir://127.0.0.1:${port}`
}
