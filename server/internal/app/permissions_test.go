package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
)

// TestOpenFilesAreTold: a file with a secret that others have permissions for is
// logged at the start, also behind a link, and keeps nobody from serving.
func TestOpenFilesAreTold(t *testing.T) {
	t.Parallel()
	for mode, told := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o440: false, 0o644: true, 0o604: true, 0o602: true} {
		file := passwordFile(t, oldToken)
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "token")
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		var log lines
		start(t, Options{HTTPTokenFile: link, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		said := log.String()
		if strings.Contains(said, "open to every user") != told {
			t.Errorf("%o: %s", mode, said)
		}
		if told && (!strings.Contains(said, link) || !strings.Contains(said, fmt.Sprintf("mode=%04o", mode)) || strings.Contains(said, oldToken)) {
			t.Errorf("%o: %s", mode, said)
		}
	}
}

// TestEverySecretFileIsLookedAt fills in each option that names a file with a secret.
func TestEverySecretFileIsLookedAt(t *testing.T) {
	t.Parallel()
	var o Options
	want := fill(reflect.ValueOf(&o).Elem(), "")
	files, seen := 0, map[string]bool{}
	for _, s := range o.secretFiles() {
		files++
		seen[*s.Field.(*string)] = true
	}
	if files != len(want) || len(seen) != len(want) {
		t.Errorf("looks at %v, want %q", seen, want)
	}
	for _, name := range want {
		if !seen[name] {
			t.Errorf("nobody looks at %s", name)
		}
	}
}

// fill gives every field that is a key, or a file of passwords, tokens or secrets, its
// own path as its value, and returns these.
func fill(v reflect.Value, path string) []string {
	var filled []string
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Name
		at := path + "." + name
		switch {
		case field.Kind() == reflect.Struct && strings.HasPrefix(field.Type().PkgPath(), "github.com/weirlimit/weir/server/internal/") && field.CanSet():
			filled = append(filled, fill(field, at)...)
		case field.Kind() == reflect.String && field.CanSet() && (name == "Key" || strings.HasSuffix(name, "File")):
			field.SetString(at)
			filled = append(filled, at)
		}
	}
	return filled
}

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
