package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/weirlimit/weir/internal/problem"
)

//go:embed assets
var files embed.FS

// uPlot 1.6.32 (https://github.com/leeoniya/uPlot) draws the charts. The files are as they
// were published; the licence has to be with each of them.
var (
	//go:embed uplot/uPlot.iife.min.js
	uplotJS string
	//go:embed uplot/uPlot.min.css
	uplotCSS string
	//go:embed uplot/LICENSE
	uplotLicence string
)

const assetPath = "/dashboard/assets/"

// An asset is a file with its digest in the name, so that it never changes.
type asset struct {
	name, mediaType string
	text            []byte
}

var mediaTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// loadAssets returns the files by the names under which they are served.
func loadAssets() map[string]*asset {
	licence := "/*!\n" + uplotLicence + "*/\n"
	all := map[string]*asset{}
	add := func(name string, text []byte) {
		ext, sum := path.Ext(name), sha256.Sum256(text)
		served := strings.TrimSuffix(name, ext) + "-" + hex.EncodeToString(sum[:8]) + ext
		all[served] = &asset{name, mediaTypes[ext], text}
	}
	add("uplot.js", []byte(licence+uplotJS))
	add("uplot.css", []byte(licence+uplotCSS))
	entries, err := files.ReadDir("assets")
	if err != nil {
		panic(fmt.Sprintf("dashboard: embedded files: %v", err))
	}
	for _, e := range entries {
		text, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("dashboard: embedded file %s: %v", e.Name(), err))
		}
		if mediaTypes[path.Ext(e.Name())] != "" {
			add(e.Name(), text)
		}
	}
	return all
}

// url returns the path of a file.
func (d *Dashboard) url(name string) (string, error) {
	for served, a := range d.assets {
		if a.name == name {
			return assetPath + served, nil
		}
	}
	return "", fmt.Errorf("dashboard: no file %s", name)
}

func (d *Dashboard) asset(w http.ResponseWriter, r *http.Request) {
	a := d.assets[strings.TrimPrefix(r.URL.Path, assetPath)]
	if a == nil {
		(&problem.Document{Status: http.StatusNotFound, Detail: "unknown file"}).Write(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.mediaType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.text)
}
