// Prints the table of what fails and why: report.js KNOWN SUITE… reads SUITE.json of Jest or Mocha. It fails if a case fails that is
// not in KNOWN.
const { readFileSync } = require('node:fs')

const [known, ...suites] = process.argv.slice(2)
const reasons = new Map(readFileSync(known, 'utf8').split('\n').filter(line => line !== '' && !line.startsWith('#')).map(line => line.split(' | ')).map(([suite, title, why]) => [`${suite} | ${title}`, why]))

function cases(suite) {
  const found = JSON.parse(readFileSync(`${suite}.json`, 'utf8'))
  if (found.tests) return found.tests.map(t => ({ title: t.fullTitle, failed: Object.keys(t.err).length > 0, why: t.err.message }))
  return found.testResults.flatMap(file => file.assertionResults.length === 0
    ? [{ title: file.name.replace(/.*\/suites\/[^/]+\//, ''), failed: true, why: file.message }]
    : file.assertionResults.filter(t => t.status !== 'pending').map(t => ({ title: t.fullName, failed: t.status !== 'passed', why: t.failureMessages.join('\n') })))
}

let broken = false
for (const suite of suites) {
  const all = cases(suite), failed = all.filter(c => c.failed)
  console.log(`${suite}: ${all.length - failed.length} of ${all.length}`)
  for (const { title, why } of failed) {
    const reason = reasons.get(`${suite} | ${title}`)
    console.log(`  ${title}: ${reason ?? 'UNKNOWN: ' + String(why).split('\n').slice(0, 8).join('\n    ')}`)
    broken ||= reason === undefined
  }
  for (const { title, failed } of all) {
    if (failed || !reasons.has(`${suite} | ${title}`)) continue
    console.log(`  ${title}: passes here, though known.txt has it`)
  }
}
process.exit(broken ? 1 : 0)
