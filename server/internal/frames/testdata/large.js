// Usage: node large.js URL METHOD CALLS BYTES
// Sends so many calls at once on one connection, each with a google.protobuf.BytesValue of so
// many bytes, and says how many were answered with status 0.
const http2 = require('node:http2');

const [url, path, calls, bytes] = process.argv.slice(2);

function varint(n) {
  const b = [];
  for (; n > 127; n >>>= 7) b.push((n & 127) | 128);
  return Buffer.from([...b, n]);
}

const message = Buffer.concat([Buffer.from([0x0a]), varint(+bytes), Buffer.alloc(+bytes, 7)]);
const prefix = Buffer.alloc(5);
prefix.writeUInt32BE(message.length, 1);
const body = Buffer.concat([prefix, message]);

const client = http2.connect(url);
client.on('error', (error) => console.error(error));

function call() {
  return new Promise((resolve) => {
    const stream = client.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' });
    let got = 0;
    let status = 'none';
    stream.on('response', (headers) => { status = headers['grpc-status'] ?? status; });
    stream.on('trailers', (trailers) => { status = trailers['grpc-status']; });
    stream.on('data', (chunk) => { got += chunk.length; });
    stream.on('error', (error) => { status = error.message; });
    stream.on('close', () => resolve(status === '0' && got === body.length ? '' : `${status}, ${got} bytes`));
    stream.end(body);
  });
}

Promise.all(Array.from({ length: +calls }, call)).then((results) => {
  const failed = results.filter((result) => result !== '');
  for (const result of new Set(failed)) console.log(result);
  console.log(`${results.length - failed.length} answered`);
  client.close();
});
