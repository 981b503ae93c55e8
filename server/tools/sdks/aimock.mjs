// Serves aimock as a provider, and prints its URL.
import { LLMock } from '@copilotkit/aimock';

const mock = new LLMock({ port: 0, chunkSize: 4 });
mock.onMessage('short', { content: 'hi there', usage: { prompt_tokens: 21, completion_tokens: 9, total_tokens: 30, input_tokens: 21, output_tokens: 9 } });
// Without usage its responses report zeros, which are no report.
mock.onMessage('long', { content: 'word '.repeat(200), usage: { prompt_tokens: 23, completion_tokens: 200, total_tokens: 223, input_tokens: 23, output_tokens: 200 } });
mock.onMessage('busy', { error: { message: 'slow down', type: 'rate_limit_error', code: 'rate_limit_exceeded' }, status: 429 });
mock.onEmbedding('vector', { embedding: [0, 0.5, 1] });
await mock.start();
console.log('url ' + mock.url);
