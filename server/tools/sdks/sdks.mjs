// Calls weir models with the SDKs of OpenAI and of Anthropic, as programs do: node sdks.mjs
// PART URL[,URL] -- PART URL …
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';

// Of the part that runs.
let urls = [], calls = 0;
const counted = (...args) => {
  calls++;
  return fetch(...args);
};
const openai = (apiKey, at = urls[0]) => new OpenAI({ apiKey, baseURL: at + '/v1', fetch: counted });
const anthropic = (apiKey, at = urls[0]) => new Anthropic({ apiKey, authToken: null, baseURL: at, fetch: counted });
const say = (...texts) => texts.map((content) => ({ role: 'user', content }));
const messages = say('hello');
const words = (text) => text.split('word').length - 1;
const failure = (promise) => promise.then(() => assert.fail('granted'), (error) => error);

// refused wants an error after so many tries.
async function refused(call, status, check, tries = 1) {
  calls = 0;
  const error = await failure(call());
  assert.equal(error.status, status, String(error));
  check(error);
  assert.equal(calls, tries, `${status} was tried ${calls} times`);
}

// drain reads a stream of chat, and returns its text and usage.
async function drain(stream, asks) {
  let text = '', usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    usage = chunk.usage ?? usage;
    assert.ok(asks || chunk.choices.length > 0, 'a chunk of usage that nobody asked for');
  }
  assert.equal(usage !== null, asks);
  return { text, usage };
}

const parts = {
  async calls() {
    const one = openai('one'), other = anthropic('one');
    const answer = await one.chat.completions.create({ model: 'mock-10', max_completion_tokens: 20, messages });
    assert.equal(answer.usage.completion_tokens, 10);
    for (const asks of [false, true]) {
      const stream_options = asks ? { include_usage: true } : undefined;
      const { text } = await drain(await one.chat.completions.create({ model: 'mock-10', max_completion_tokens: 20, messages, stream: true, stream_options }), asks);
      assert.equal(words(text), 10);
    }
    const response = await one.responses.create({ model: 'mock-10', max_output_tokens: 20, input: 'hello' });
    assert.equal(response.usage.output_tokens, 10);
    const message = await other.messages.create({ model: 'mock-10', max_tokens: 20, messages });
    assert.equal(message.usage.output_tokens, 10);
    const whole = await other.messages.stream({ model: 'mock-10', max_tokens: 20, messages }).finalMessage();
    assert.equal(whole.usage.output_tokens, 10);
    assert.equal(words(whole.content[0].text), 10);
    assert.ok((await other.messages.countTokens({ model: 'mock', messages })).input_tokens > 0);
    // What is left, with the credential of each SDK. The second one may have to wait for a second.
    for (const [client, path] of [[one, '/me'], [other, '/v1/me']]) {
      const { limits } = await client.get(path), requests = limits.find(({ name }) => name === 'requests');
      assert.equal(requests.remaining, requests.limit - 7);
    }
  },

  async refusals() {
    const one = openai('one'), long = say('hello '.repeat(250)), longer = say('hello '.repeat(1000));
    await one.chat.completions.create({ model: 'mock-90', max_completion_tokens: 90, messages });
    await refused(() => one.chat.completions.create({ model: 'mock-50', max_completion_tokens: 50, messages }, { maxRetries: 0 }), 429, (e) => {
      assert.ok(e instanceof OpenAI.RateLimitError);
      assert.equal(e.code, 'rate_limit_exceeded');
      assert.equal(e.type, 'tokens');
    });
    const three = anthropic('three');
    await three.messages.create({ model: 'mock-90', max_tokens: 90, messages });
    await refused(() => three.messages.create({ model: 'mock-50', max_tokens: 50, messages }, { maxRetries: 0 }), 429, (e) => {
      assert.ok(e instanceof Anthropic.RateLimitError);
      assert.equal(e.error.error.type, 'rate_limit_error');
    });
    // Nothing below is tried again, although the SDK would.
    await refused(() => openai('two').chat.completions.create({ model: 'mock', messages: longer }), 413, (e) => assert.equal(e.code, 'request_too_large'));
    await refused(() => openai('two').chat.completions.create({ model: 'other', messages }), 400, (e) => assert.equal(e.code, 'unknown_model'));
    await openai('four').chat.completions.create({ model: 'mock-1', max_completion_tokens: 1, messages: long });
    await refused(() => openai('four').chat.completions.create({ model: 'mock-1', max_completion_tokens: 1, messages: long }), 429, (e) => assert.equal(e.code, 'insufficient_quota'));
    await refused(() => anthropic('four').messages.create({ model: 'mock-1', max_tokens: 1, messages: long }), 429, (e) => {
      assert.ok(e instanceof Anthropic.RateLimitError);
      assert.equal(e.error.error.details.error_code, 'enforced_spend_limit_reached');
    });
  },

  async waits() {
    // A short wait is waited for.
    for (const quick of [
      () => openai('five').chat.completions.create({ model: 'mock-quick', max_completion_tokens: 1, messages }),
      () => anthropic('six').messages.create({ model: 'mock-quick', max_tokens: 1, messages }),
    ]) {
      calls = 0;
      const begun = performance.now();
      await quick();
      await quick();
      assert.equal(calls, 3);
      assert.ok(performance.now() - begun > 2000);
    }
    // A slot that stays taken is tried for twice more.
    const stream = await openai('seven').chat.completions.create({ model: 'mock-100000', max_completion_tokens: 100000, messages, stream: true });
    await stream[Symbol.asyncIterator]().next();
    await refused(() => openai('eight').chat.completions.create({ model: 'mock-100000', max_completion_tokens: 1, messages }), 429, (e) => {
      assert.ok(e instanceof OpenAI.RateLimitError);
      assert.equal(e.code, 'rate_limit_exceeded');
      assert.equal(e.type, 'requests');
    }, 3);
    await refused(() => anthropic('nine').messages.create({ model: 'mock-100000', max_tokens: 1, messages }), 429, (e) => {
      assert.ok(e instanceof Anthropic.RateLimitError);
      assert.equal(e.error.error.type, 'rate_limit_error');
    }, 3);
    stream.controller.abort();
  },

  // Each try of an SDK is a request.
  async overload() {
    const answer = await openai('one').chat.completions.create({ model: 'any', max_completion_tokens: 20, messages });
    assert.equal(answer.usage.total_tokens, 12);
    const message = await anthropic('one').messages.create({ model: 'any', max_tokens: 20, messages });
    assert.equal(message.usage.output_tokens, 5);
    assert.equal(calls, 6);
  },

  // A stream that ends with the server is an error.
  async cut() {
    const streams = await Promise.all([
      openai('one').chat.completions.create({ model: 'mock-100000', messages, stream: true }),
      openai('one').responses.create({ model: 'mock-100000', input: 'hello', stream: true }),
      anthropic('one').messages.create({ model: 'mock-100000', max_tokens: 100000, messages, stream: true }),
    ]);
    const opened = streams.map((s) => s[Symbol.asyncIterator]());
    await Promise.all(opened.map((s) => s.next()));
    console.log('open');
    await Promise.all(opened.map(async (s) => {
      const error = await failure((async () => {
        for (let next = await s.next(); !next.done; next = await s.next()) if (next.value.type === 'error') throw new Error(next.value.message);
      })());
      assert.match(String(error.message), /the server stops/);
    }));
  },

  // Calls n times, each time as another caller, and prints how it went: with both SDKs in turn, or with
  // OpenAI's all at once (chat) or one by one (alone).
  async together(n, how, words) {
    const messages = say('hello '.repeat(words));
    const call = async (i) => {
      const at = urls[Math.floor(i / 2) % urls.length];
      try {
        if (how !== 'both' || i % 2) await openai('caller-' + i, at).chat.completions.create({ model: 'm', messages });
        else await anthropic('caller-' + i, at).messages.create({ model: 'm', max_tokens: 1000, messages });
      } catch (error) {
        if (error.status !== 429) throw error;
        return error.code ?? error.error.error.type;
      }
      return 'served';
    };
    const outcomes = [];
    if (how === 'alone') for (let i = 0; i < n; i++) outcomes.push(await call(i));
    else outcomes.push(...await Promise.all(Array.from({ length: n }, (_, i) => call(i))));
    const sum = { calls };
    for (const outcome of outcomes) sum[outcome] = (sum[outcome] ?? 0) + 1;
    console.log(JSON.stringify(sum));
  },

  // Prints what aimock reported.
  async aimock() {
    const one = openai('one'), other = anthropic('one');
    const sum = { requests: 0, input: 0, cached: 0, output: 0 };
    const add = (input, output) => {
      assert.ok(Number.isInteger(input) && Number.isInteger(output), `${input} ${output}`);
      sum.input += input;
      sum.output += output;
    };
    for (const text of ['short', 'long']) {
      const { usage } = await one.chat.completions.create({ model: 'gpt-4o', messages: say(text) });
      add(usage.prompt_tokens, usage.completion_tokens);
      const chunks = await drain(await one.chat.completions.create({ model: 'gpt-4o', messages: say(text), stream: true, stream_options: { include_usage: true } }), true);
      add(chunks.usage.prompt_tokens, chunks.usage.completion_tokens);
      const response = await one.responses.create({ model: 'gpt-4o', input: text });
      add(response.usage.input_tokens, response.usage.output_tokens);
      const message = await other.messages.create({ model: 'claude-sonnet-4-5', max_tokens: 500, messages: say(text) });
      add(message.usage.input_tokens, message.usage.output_tokens);
      const whole = await other.messages.stream({ model: 'claude-sonnet-4-5', max_tokens: 500, messages: say(text) }).finalMessage();
      add(whole.usage.input_tokens, whole.usage.output_tokens);
    }
    // It reports zeros, which are no report: the input costs its estimate.
    const vector = { model: 'text-embedding-3-small', input: 'vector', encoding_format: 'float' };
    assert.equal((await one.embeddings.create(vector)).usage.prompt_tokens, 0);
    add(Math.ceil(JSON.stringify(vector).length / 4), 0);
    assert.equal((await failure(one.chat.completions.create({ model: 'gpt-4o', messages: say('busy') }, { maxRetries: 0 }))).status, 429);
    sum.requests = calls;
    console.log(JSON.stringify(sum));
  },
};
for (const job of process.argv.slice(2).join(' ').split(' -- ')) {
  const [part, given, ...rest] = job.split(' ');
  urls = given.split(',');
  calls = 0;
  await parts[part](...rest);
}
