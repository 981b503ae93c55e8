// A server of a thread of its own: when told to, it closes its connections, and then sets a flag.
import net from 'node:net'
import { parentPort, workerData } from 'node:worker_threads'

const { flag, granted } = workerData
const connections = new Set()
const listener = net.createServer({ noDelay: true }, connection => {
  connections.add(connection)
  connection.on('error', () => {})
  connection.on('data', data => connection.write(data.includes('PING') ? '+PONG\r\n' : granted))
}).listen(0, '127.0.0.1', () => parentPort.postMessage(listener.address().port))

parentPort.on('message', async () => {
  await Promise.all([...connections].map(connection => new Promise(done => connection.end(done))))
  Atomics.store(flag, 0, 1)
  Atomics.notify(flag, 0)
})
