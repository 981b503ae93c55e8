// Runs the programs of the README against the server that WEIR_URL names, each in a process of its own.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const programs = [...readFileSync(root + 'README.md', 'utf8').matchAll(/^```js\n(.*?)^```/gms)].map(m => m[1])
const begin = 'const weir = new Weir({ timeoutMs: 30000 }), callModel = async () => ({ tokens: 3 })\n'

// run starts a program, which finds this package by its name.
function run(program) {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  child.stdout.on('data', data => { text += data })
  child.stderr.on('data', data => { text += data })
  const ended = new Promise(done => child.on('close', code => done({ code, text })))
  return { child, ended }
}

// listening returns the port that a program writes.
async function listening({ child, ended }) {
  const first = new Promise(done => child.stdout.once('data', data => done({ port: Number(data) })))
  const { port, text } = await Promise.race([first, ended])
  assert.ok(port, text)
  return port
}

for (const [i, program] of programs.entries()) {
  const others = /from '(express|@nestjs)|rate-limiter-flexible/.test(program) && !existsSync(root + 'node_modules/express')
  const skip = !process.env.WEIR_URL ? 'WEIR_URL names no server' : others && 'run npm ci'
  test(`program ${i + 1} of the README`, { skip }, async () => {
    if (program.includes('.listen(8000)')) {
      const lines = program.split('\n').filter(line => line.trim() !== '' && !line.includes('node:http'))
      if (i === 0) assert.ok(lines.length <= 6, `${lines.length} lines`)
      // A limit that no unit returns to during the test, at a port that is free.
      const server = run(program.replace("'10/s'", "'10/week'").replace('`ip:', `\`ip${i}:`).replace('new Weir()', 'new Weir({ timeoutMs: 30000 })')
        .replace('.listen(8000)', '.listen(0, "127.0.0.1", function () { console.log(this.address().port) })'))
      try {
        const url = `http://127.0.0.1:${await listening(server)}`
        const answers = []
        for (let n = 0; n < 11; n++) answers.push(await fetch(url))
        assert.deepEqual(answers.map(a => a.status === 429), [...Array(10).fill(false), true])
        assert.ok(Number(answers[10].headers.get('Retry-After')) > 0)
      } finally {
        server.child.kill()
        await server.ended
      }
      return
    }
    const itsOwn = program.includes('new Weir(')
    const { code, text } = await run(`import { Weir } from '@weirlimit/client'
      ${itsOwn ? '' : begin}${program.replace('limits.example.com:6380', '127.0.0.1:1')}
      console.log(typeof d === 'undefined' ? 'done' : d.source)`).ended
    assert.equal(code, 0, text)
    assert.ok(text.endsWith(itsOwn ? 'client_closed\n' : program.includes('const d ') ? 'store\n' : 'done\n'), text)
  })
}
