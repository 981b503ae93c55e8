package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func newModels() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "models",
		Short: "Limit requests, tokens and dollars of language models",
		Long: `Forward requests to a provider of language models and limit what they use. Point the
clients of OpenAI or Anthropic at this address; nothing else changes for them.

Requests, input and output tokens, dollars and slots of a request are held together before
it is forwarded, and settled together from the usage that the provider reports. The
descriptors are (key), (model) and (key, model): the caller and the model of the request.
A request that no rule applies to is refused.

Once the proxy is up, it prints the addresses in use, one a line: "models 127.0.0.1:8090",
"admin 127.0.0.1:6070". Logs go to stderr, without prompts and credentials. Rules, signals,
the store and memory are as with weir serve. On SIGTERM streams go on until the drain
timeout, and then end with an error event.

With --mock the proxy has a provider of its own that answers with words and costs nothing.`,
		Example: `  # try it without a key of anybody's: demonstration rules, prints calls to try
  weir models --mock

  # before OpenAI, with limits that all instances share through Redis
  weir models --upstream https://api.openai.com --config rules.yaml --store redis://redis.internal:6379/0`,
		Args: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.Models.Mock && f.Models.Upstream == "" {
				return errors.New("want --upstream URL, or --mock")
			}
			return f.run(cmd)
		},
	}
	f.bind(cmd, f.ModelSettings())
	return cmd
}

// The calls behave as the comments say; a test runs them.
const modelsText = `
# These are demonstration rules: each key may use 150 output tokens a minute. Use your own
# with --config.

# Four calls of one key, with 40 output tokens each: 200 three times, then 429.
for i in 1 2 3 4; do curl -s -o /dev/null -w '%%{http_code}\n' -H 'Authorization: Bearer any-key' -d '{"model":"mock-40","messages":[{"role":"user","content":"hello"}]}' http://%[1]s/v1/chat/completions; done

# What the refusal says, in the form that the SDKs of OpenAI understand.
curl -i -H 'Authorization: Bearer any-key' -d '{"model":"mock-40","messages":[{"role":"user","content":"hello"}]}' http://%[1]s/v1/chat/completions
`
