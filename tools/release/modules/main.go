// Command modules gives the modules of this repository the version of a release. They
// require one another as v0.0.0 otherwise, which only the workspace can find.
//
//	modules -version v1.2.3 -write        in the tree: the last change of a release commit
//	modules -version v1.2.3 -proxy DIR    in copies, packed as GOPROXY=file://DIR serves them
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

const repository = "github.com/weirlimit/weir"

// published lists the folders of the modules that a release offers. Each requires only
// modules before it: go.sum holds the hashes of their zips.
var published = []string{".", "trace", "weirgrpc", "weirprom", "server"}

func main() {
	version := flag.String("version", "", "version of the release, such as v1.2.3")
	root := flag.String("root", ".", "checkout of the repository")
	write := flag.Bool("write", false, "write the versions into the checkout")
	proxy := flag.String("proxy", "", "folder to write the module proxy to")
	flag.Parse()
	if err := run(*root, *version, *proxy, *write); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

func run(root, version, proxy string, write bool) error {
	if semver.Canonical(version) != version {
		return fmt.Errorf("version %q: want one such as v1.2.3", version)
	}
	tree, err := os.MkdirTemp("", "modules")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	files, err := checkout(root, tree)
	if err != nil {
		return err
	}
	if err := setVersions(tree, version, files); err != nil {
		return err
	}
	if proxy == "" {
		proxy = filepath.Join(tree, ".proxy")
	}
	sums := map[string]string{} // lines of go.sum, by module
	for _, folder := range published {
		if err := addSums(filepath.Join(tree, folder), sums); err != nil {
			return err
		}
		path := filepath.ToSlash(filepath.Join(repository, folder))
		if sums[path], err = pack(filepath.Join(tree, folder), proxy, module.Version{Path: path, Version: version}); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	for _, file := range files {
		if base := filepath.Base(file); base == "go.mod" || base == "go.sum" || base == "go.work" {
			if err := copyFile(filepath.Join(tree, file), filepath.Join(root, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkout copies the tracked files of the repository to tree and returns their paths.
// Like the go command, it gives every module the repository's licence.
func checkout(root, tree string) ([]string, error) {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		err := copyFile(filepath.Join(root, name), filepath.Join(tree, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, but not committed yet
		}
		if err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	for _, folder := range published[1:] {
		if err := copyFile(filepath.Join(tree, "LICENSE"), filepath.Join(tree, folder, "LICENSE")); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// setVersions sets the version of the repository's modules wherever they are required,
// and where go.work replaces them.
func setVersions(tree, version string, files []string) error {
	for _, name := range files {
		path := filepath.Join(tree, name)
		var err error
		switch filepath.Base(name) {
		case "go.mod":
			err = edit(path, func(text []byte) ([]byte, error) { return setRequired(name, text, version) })
		case "go.work":
			err = edit(path, func(text []byte) ([]byte, error) { return setReplaced(name, text, version) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func edit(path string, change func([]byte) ([]byte, error)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed, err := change(text)
	if err != nil {
		return err
	}
	return os.WriteFile(path, changed, 0o644)
}

func ours(path string) bool { return path == repository || strings.HasPrefix(path, repository+"/") }

func setRequired(name string, text []byte, version string) ([]byte, error) {
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	for _, require := range file.Require {
		if ours(require.Mod.Path) {
			if err := file.AddRequire(require.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	return file.Format()
}

func setReplaced(name string, text []byte, version string) ([]byte, error) {
	file, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return nil, err
	}
	for _, replace := range slices.Clone(file.Replace) {
		if !ours(replace.Old.Path) || replace.Old.Version == version {
			continue
		}
		if err := file.AddReplace(replace.Old.Path, version, replace.New.Path, ""); err != nil {
			return nil, err
		}
		if err := file.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
			return nil, err
		}
	}
	file.Cleanup()
	return modfile.Format(file.Syntax), nil
}

// addSums writes into a module's go.sum the lines of those modules that it requires.
func addSums(folder string, sums map[string]string) error {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return err
	}
	return edit(filepath.Join(folder, "go.sum"), func(text []byte) ([]byte, error) {
		lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
			path, _, _ := strings.Cut(line, " ")
			return line == "" || ours(path)
		})
		for _, path := range slices.Sorted(maps.Keys(sums)) {
			if !slices.ContainsFunc(file.Require, func(r *modfile.Require) bool { return r.Mod.Path == path }) {
				continue
			}
			at := slices.IndexFunc(lines, func(line string) bool { return line > sums[path] })
			if at < 0 {
				at = len(lines)
			}
			lines = slices.Insert(lines, at, sums[path])
		}
		return []byte(strings.Join(lines, "")), nil
	})
}

// pack writes a module into the proxy and returns its lines of go.sum.
func pack(folder, proxy string, m module.Version) (string, error) {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var zipped bytes.Buffer
	if err := zip.CreateFromDir(&zipped, m, folder); err != nil {
		return "", err
	}
	epoch, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, time.Unix(epoch, 0).UTC()})
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{
		"list": []byte(m.Version + "\n"), m.Version + ".info": info, m.Version + ".mod": mod, m.Version + ".zip": zipped.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return "", err
		}
	}
	ofZip, err := dirhash.HashZip(filepath.Join(dir, m.Version+".zip"), dirhash.Hash1)
	if err != nil {
		return "", err
	}
	ofMod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(mod)), nil })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n", m.Path, m.Version, ofZip, ofMod), nil
}
