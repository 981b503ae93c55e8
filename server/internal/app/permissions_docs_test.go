package app

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"testing"

	"github.com/weirlimit/weir/internal/pages"
)

// TestOpenFilesDocs: the line of the log that docs/access.md shows is one that is
// written.
func TestOpenFilesDocs(t *testing.T) {
	t.Parallel()
	blocks := pages.Mine(t, "docs/access.md")
	if len(blocks) != 1 {
		t.Fatalf("%d blocks", len(blocks))
	}
	var want, got map[string]any
	if err := json.Unmarshal([]byte(blocks[0].Text), &want); err != nil {
		t.Fatal(err)
	}
	file := passwordFile(t, oldToken)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o := Options{HTTPTokenFile: file, Logger: slog.New(slog.NewJSONHandler(&log, nil))}
	o.warnOfOpenFiles(t.Context())
	if err := json.Unmarshal(log.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, log.Bytes())
	}
	delete(got, "time")
	want["file"] = file
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
