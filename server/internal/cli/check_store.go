package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/report"
	"github.com/weirlimit/weir/server/internal/store"
)

// checkTimeout bounds the check of all servers of a store.
const checkTimeout = 10 * time.Second

// checkStore prints what is wrong with the settings of a store's servers.
func checkStore(cmd *cobra.Command, o *app.Options) error {
	redis.SetLogger(redisLog{slog.New(slog.DiscardHandler)}) // the error says it
	opened, err := store.Open(o.StoreOptions())
	if err != nil {
		return err
	}
	defer opened.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
	defer cancel()
	found, err := opened.Check(ctx)
	for _, f := range found {
		fmt.Fprintln(cmd.OutOrStdout(), f)
	}
	switch {
	case err != nil:
		return &problemsFound{fmt.Errorf("the store cannot be checked: %w", opened.Blame(err))}
	case len(found) > 0:
		return &problemsFound{errors.New(report.Counted(len(found), "problem") + " with the store")}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok: the store")
	return err
}
