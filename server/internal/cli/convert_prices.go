package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/lab/convert"
	"github.com/weirlimit/weir/server/internal/lab/report"
)

// pricesFlags are the flags of weir convert litellm-prices.
type pricesFlags struct {
	output, asOf string
	providers    []string
}

func newConvertPrices() *cobra.Command {
	var f pricesFlags
	cmd := &cobra.Command{
		Use:   "litellm-prices FILE",
		Short: "Convert LiteLLM's model_prices_and_context_window.json to a price file",
		Long: `Convert reads LiteLLM's prices of language models and writes a price file for "prices" in
the rules of weir models. Each model keeps its exact name. A price that is missing is never
0: the model is left out.

Convert lists on stderr, a line for each model, what a price file does not have: tiers for
long prompts and for classes of service, and prices of images, audio, searches and batches.
Requests that such a price is for are charged the ordinary one.

The file says that its prices are right as of the day on which FILE was modified, or as of
the day in --as-of.

Exit codes: 0 everything was converted, 1 something was not, 2 the file cannot be read or
is not LiteLLM's.`,
		Example: `  weir convert litellm-prices model_prices_and_context_window.json --provider openai -o prices.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "write the price file to this file (default: stdout)")
	flags.StringVar(&f.asOf, "as-of", "", "the day on which the prices were right, such as 2026-11-01 (default: the day on which FILE was modified)")
	flags.StringSliceVar(&f.providers, "provider", nil, "take the models of this litellm_provider only, such as openai; may be repeated")
	cmd.ValidArgsFunction = completeFiles("json")
	mustComplete(cmd.RegisterFlagCompletionFunc("output", completeFiles("yaml", "yml")))
	return cmd
}

func (f *pricesFlags) run(cmd *cobra.Command, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	asOf := info.ModTime().UTC()
	if f.asOf != "" {
		if asOf, err = time.Parse(time.DateOnly, f.asOf); err != nil {
			return fmt.Errorf("--as-of is %q: want a day such as 2026-11-01", f.asOf)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	prices, err := convert.LiteLLM(text, asOf, f.providers)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if prices.Rows == 0 {
		return &problemsFound{fmt.Errorf("%s has no model with prices of tokens", file)}
	}
	if err := config.CheckPrices("the price file", prices.Text); err != nil {
		return err
	}
	if f.output == "" {
		_, err = cmd.OutOrStdout().Write(prices.Text)
	} else {
		err = os.WriteFile(f.output, prices.Text, 0o644)
	}
	if err != nil {
		return err
	}
	for _, loss := range prices.Lost {
		fmt.Fprintln(cmd.ErrOrStderr(), loss)
	}
	if len(prices.Lost) > 0 {
		return &problemsFound{fmt.Errorf("%s converted; %s not, or not exactly", report.Counted(prices.Rows, "model"), report.Counted(len(prices.Lost), "model"))}
	}
	return nil
}
