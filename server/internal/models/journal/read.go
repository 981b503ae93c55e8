package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/weirlimit/weir"
)

// maxLine is the size of the longest line that is read.
const maxLine = 1 << 20

// Read calls use with each line of a folder's files of a day and later, in their order. Lines that
// are longer than 1 MiB are used as empty ones. An error of use ends it.
func Read(dir string, from time.Time, use func(line []byte) error) error {
	all, err := parts(dir)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if len(all) == 0 {
		return &weir.InvalidError{Field: "journal", Value: dir, Want: "a folder with files such as 2026-11-15" + extension}
	}
	return read(all, from, time.Time{}, use)
}

// Past calls use with each line that was there when the journal was opened, from so long before
// the last day of it. It may be called again.
func (j *Journal) Past(before time.Duration, use func(line []byte) error) error {
	if len(j.past) == 0 {
		return nil
	}
	last, _ := dayOf(j.past[len(j.past)-1].name)
	return j.Between(last.Add(-before), time.Time{}, use)
}

// Between calls use with each line that was there when the journal was opened, of the days from one
// until before another; zero: of all that follow. It may be called again.
func (j *Journal) Between(from, until time.Time, use func(line []byte) error) error {
	return read(j.past, from, until, use)
}

func read(all []part, from, until time.Time, use func(line []byte) error) error {
	const oneDay = 24 * time.Hour
	for _, p := range all {
		if day, _ := dayOf(p.name); day.Before(from.UTC().Truncate(oneDay)) || !until.IsZero() && !day.Before(until.UTC().Truncate(oneDay)) {
			continue
		}
		err := p.read(use)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Its time was over meanwhile.
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p part) read(use func(line []byte) error) error {
	file, err := os.Open(p.name)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer file.Close()
	from := bufio.NewReaderSize(io.LimitReader(file, p.size), 64<<10)
	var line []byte
	for long := false; ; {
		more, err := from.ReadSlice('\n')
		if long = long || len(line)+len(more) > maxLine; !long {
			line = append(line, more...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("journal: %w", err)
		case err != nil && len(line) == 0 && !long:
			return nil
		case long:
			line = line[:0]
		}
		if failed := use(trimmed(line)); failed != nil {
			return failed
		}
		if err != nil {
			return nil
		}
		line, long = line[:0], false
	}
}

// trimmed returns a line without its end.
func trimmed(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}
