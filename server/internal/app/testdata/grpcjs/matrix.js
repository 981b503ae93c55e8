// Usage: node matrix.js ADDRESS
// Calls Weir with grpc-js in every way, and prints a line for what went wrong. Then it calls all
// the time, says "ready", and goes on until its standard input ends.
const grpc = require('@grpc/grpc-js');

const address = process.argv[2];
const insecure = grpc.credentials.createInsecure();
const same = (bytes) => bytes;
const decide = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';
const check = '/grpc.health.v1.Health/Check';
const watch = '/grpc.health.v1.Health/Watch';
const reflect = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';

function field(number, bytes) {
  const length = [];
  let n = bytes.length;
  for (; n > 127; n >>>= 7) length.push((n & 127) | 128);
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length, n]), bytes]);
}

// request asks for so many descriptors with values of a size.
function request(descriptors, size) {
  const entry = Buffer.concat([field(1, Buffer.from('free')), field(2, Buffer.alloc(size, 'x'))]);
  return Buffer.concat([field(1, Buffer.from('clients')), ...Array(descriptors).fill(field(2, field(1, entry)))]);
}

const small = request(1, 1);

function call(client, path, message, options = {}, metadata = new grpc.Metadata(), begun = () => {}) {
  return new Promise((resolve) => {
    begun(client.makeUnaryRequest(path, same, same, message, metadata, options, (error, answer) => {
      resolve(error ? { code: error.code, text: error.details } : { code: 0, answer });
    }));
  });
}

let failed = false;

function want(name, got, code) {
  if (got.code !== code) {
    console.log(`${name}: code ${got.code} ${got.text || ''}, want ${code}`);
    failed = true;
  }
}

// until receives messages of a stream until enough have come, and then cancels it.
function until(stream, enough) {
  return new Promise((resolve) => {
    const messages = [];
    stream.on('data', (message) => {
      messages.push(message);
      if (messages.length === enough) stream.cancel();
    });
    stream.on('error', (error) => resolve({ code: error.code, text: error.details, messages }));
    stream.on('end', () => resolve({ code: 0, messages }));
  });
}

async function matrix() {
  const plain = new grpc.Client(address, insecure);
  const zipped = new grpc.Client(address, insecure, { 'grpc.default_compression_algorithm': 2, 'grpc.use_local_subchannel_pool': 1 });
  for (const [name, client] of Object.entries({ plain, zipped })) {
    for (let i = 0; i < 100; i++) want(`${name}, one after another`, await call(client, decide, small), 0);
    for (const got of await Promise.all(Array.from({ length: 1000 }, () => call(client, decide, small)))) want(`${name}, many`, got, 0);
    const large = request(12, 16384);
    for (const got of await Promise.all(Array.from({ length: 32 }, () => call(client, decide, large)))) want(`${name}, large`, got, 0);
    want(`${name}, too large`, await call(client, decide, request(20, 16384)), 0);
    want(`${name}, wrong`, await call(client, decide, Buffer.alloc(0)), grpc.status.INVALID_ARGUMENT);
    want(`${name}, unknown`, await call(client, '/a.B/C', small), grpc.status.UNIMPLEMENTED);
    want(`${name}, check`, await call(client, check, Buffer.alloc(0)), 0);
    want(`${name}, deadline`, await call(client, decide, small, { deadline: Date.now() - 1 }), grpc.status.DEADLINE_EXCEEDED);
    want(`${name}, cancellation`, await call(client, decide, large, {}, undefined, (sent) => setImmediate(() => sent.cancel())), grpc.status.CANCELLED);
    const metadata = new grpc.Metadata();
    for (let i = 0; i < 50; i++) metadata.add(`x-text-${i}`, 'v'.repeat(100));
    metadata.add('x-bytes-bin', Buffer.from([0, 1, 255]));
    want(`${name}, metadata`, await call(client, decide, small, {}, metadata), 0);

    const watched = await until(client.makeServerStreamRequest(watch, same, same, Buffer.alloc(0)), 1);
    want(`${name}, watch`, watched, grpc.status.CANCELLED);
    if (watched.messages[0].toString('hex') !== '0801') console.log(`${name}, watch: ${watched.messages[0].toString('hex')}`);
    const info = client.makeBidiStreamRequest(reflect, same, same);
    for (let i = 0; i < 20; i++) info.write(field(7, Buffer.from('*')));
    info.end();
    const reflected = await until(info, -1);
    want(`${name}, reflection`, reflected, 0);
    if (reflected.messages.length !== 20 || !reflected.messages[19].includes('envoy.service.ratelimit.v3.RateLimitService')) {
      console.log(`${name}, reflection: ${reflected.messages.length} answers`);
    }
  }
}

// forever calls until the end.
async function forever(ends) {
  const client = new grpc.Client(address, insecure, { 'grpc.initial_reconnect_backoff_ms': 20, 'grpc.max_reconnect_backoff_ms': 100 });
  let calls = 0;
  const metadata = new grpc.Metadata({ waitForReady: true });
  await Promise.all(Array.from({ length: 16 }, async () => {
    while (!ends.now) {
      want('while the server restarts', await call(client, decide, small, {}, metadata), 0);
      if (++calls === 16) console.log('ready');
    }
  }));
  console.log(calls >= 16 && !failed ? 'all answered' : 'failed');
}

const ends = { now: false };
process.stdin.on('end', () => { ends.now = true; }).resume();
matrix().then(() => forever(ends)).then(() => process.exit(0));
