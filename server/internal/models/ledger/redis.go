package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxFields is how many fields the sums of a month may have.
const maxFields = 500_000

//go:embed record.lua
var recordText string

//go:embed claim.lua
var claimText string

//go:embed epoch.lua
var epochText string

var (
	epochScript  = redis.NewScript(epochText)
	recordScript = redis.NewScript(recordText)
	claimScript  = redis.NewScript(claimText)
)

// A shared book is in Redis. All its keys are in one hash slot.
type shared struct {
	client redis.UniversalClient
	tag    string // what all keys begin with
	fields int    // that a month may have
}

func (s *shared) outbox() string { return s.tag + "outbox" }
func (s *shared) due() string    { return s.tag + "due" }

func (s *shared) epochKey() string { return s.tag + "epoch" }

func (s *shared) epoch(ctx context.Context) (string, error) {
	return epochScript.Run(ctx, s.client, []string{s.epochKey()}, rand.Text(), keepEpoch.Milliseconds()).Text()
}

func (s *shared) record(ctx context.Context, epoch string, all []*record) (left []*record, alerts int, err error) {
	pipe := s.client.Pipeline()
	answers := make([]*redis.Cmd, len(all))
	for i, r := range all {
		keys, args := s.arguments(epoch, r)
		answers[i] = recordScript.EvalSha(ctx, pipe, keys, args...)
	}
	_, _ = pipe.Exec(ctx) // Each answer has its error.
	unknown := -1         // the place in left of the first whose script Redis did not know
	for i, answer := range answers {
		n, failed := answer.Int()
		switch {
		case failed != nil && redis.HasErrorPrefix(failed, "NOSCRIPT"):
			if unknown < 0 {
				unknown = len(left)
			}
			left = append(left, all[i])
		case failed != nil:
			left = append(left, all[i])
			err = cmp.Or(err, failed)
		case n == otherEpoch:
			left = append(left, all[i])
			err = cmp.Or(err, errEpoch)
		case n > 0:
			alerts += n
		}
	}
	if unknown < 0 || err != nil {
		return left, alerts, err
	}
	// One brings the script along, since users of Redis need not be allowed to load scripts. The
	// others are sent again at once.
	keys, args := s.arguments(epoch, left[unknown])
	n, err := recordScript.Eval(ctx, s.client, keys, args...).Int()
	if n == otherEpoch {
		err = errEpoch
	}
	if err != nil {
		return left, alerts, err
	}
	return slices.Delete(left, unknown, unknown+1), alerts + max(0, n), nil
}

// otherEpoch is the answer of record.lua that nothing was recorded, because the store has lost its
// data.
const otherEpoch = -2

// arguments returns the keys and the arguments of the script that makes a record.
func (s *shared) arguments(epoch string, r *record) ([]string, []any) {
	keys := []string{s.tag + "id:" + r.id, s.tag + "month:" + r.month, s.outbox(), s.due(), s.epochKey()}
	args := make([]any, 0, 32)
	args = append(args, int64(keepIDs/time.Second), s.fields, r.ends, r.row, otherRow, (2 * keepAlerts).Milliseconds(), epoch, -1)
	count := len(args) - 1
	if r.id != "" {
		sums := 0
		for i, n := range r.used.all() {
			if i == 0 && r.row != "" || *n != 0 {
				args = append(args, numbers[i], *n)
				sums++
			}
		}
		args[count] = sums
	}
	for i := range r.charges {
		c := &r.charges[i]
		keys = append(keys, s.tag+"window:"+c.window)
		args = append(args, c.key, c.units, c.expires, c.about, len(c.levels))
		for _, at := range c.levels {
			args = append(args, at.name, at.units)
		}
	}
	return keys, args
}

func (s *shared) claim(ctx context.Context, d time.Duration) (*alert, error) {
	got, err := claimScript.Run(ctx, s.client, []string{s.due(), s.outbox()}, int64(d/time.Second)).StringSlice()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(got) != 3 {
		return nil, err
	}
	now, err := strconv.ParseInt(got[2], 10, 64)
	if err != nil {
		return nil, err
	}
	return readAlert(got[0], got[1], time.Unix(now, 0)), nil
}

func (s *shared) remove(ctx context.Context, id string) error {
	// The text first: claim.lua removes what has none.
	if err := s.client.HDel(ctx, s.outbox(), id).Err(); err != nil {
		return err
	}
	return s.client.ZRem(ctx, s.due(), id).Err()
}

func (s *shared) used(ctx context.Context, charges []Charge) ([]int64, error) {
	pipe := s.client.Pipeline()
	answers := make([]*redis.StringCmd, len(charges))
	for i := range charges {
		answers[i] = pipe.HGet(ctx, s.tag+"window:"+charges[i].Window.name(), charges[i].Key)
	}
	_, _ = pipe.Exec(ctx) // Each answer has its error.
	used := make([]int64, len(charges))
	for i, answer := range answers {
		n, err := answer.Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		used[i] = n
	}
	return used, nil
}

func (s *shared) month(ctx context.Context, name string) (map[string]int64, error) {
	sums := map[string]int64{}
	var cursor uint64
	for {
		page, next, err := s.client.HScan(ctx, s.tag+"month:"+name, cursor, "", 1000).Result()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(page); i += 2 {
			n, err := strconv.ParseInt(page[i+1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%w: %s", errMonth, strings.ToValidUTF8(page[i], ""))
			}
			sums[page[i]] = n
		}
		if cursor = next; cursor == 0 {
			return sums, nil
		}
	}
}
