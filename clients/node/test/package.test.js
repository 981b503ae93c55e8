// Installs the package as its README says, and loads it by import and by require.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)

test('npm installs the package', async t => {
  const folder = await mkdtemp(join(tmpdir(), 'weir-'))
  t.after(() => rm(folder, { recursive: true }))
  await writeFile(join(folder, 'package.json'), '{}')
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', fileURLToPath(new URL('..', import.meta.url))], { cwd: folder })
  const names = '[Weir, Refused, NEVER].map(v => typeof v).join()'
  for (const args of [
    ['--input-type=module', '--eval', `import { Weir, Refused, NEVER } from '@weirlimit/client'; console.log(${names})`],
    ['--input-type=commonjs', '--eval', `const { Weir, Refused, NEVER } = require('@weirlimit/client'); console.log(${names})`],
  ]) assert.equal((await run(process.execPath, args, { cwd: folder })).stdout, 'function,function,number\n')
})

const root = fileURLToPath(new URL('..', import.meta.url))
const tsc = root + 'node_modules/.bin/tsc'

test('types fit the packages that adapters are for', { skip: !existsSync(tsc) && 'run npm ci' }, async () => {
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2022', '--types', 'node']
  await run(tsc, [...options, 'test/types/program.ts'], { cwd: root }).catch(error => assert.fail(error.stdout))
})
