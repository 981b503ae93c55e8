package httpapi

import (
	_ "embed" // the description of the interface
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Where the description of the interface is served, which is an OpenAPI document.
const (
	DescriptionJSON = "/openapi.json"
	DescriptionYAML = "/openapi.yaml"
)

//go:embed openapi.yaml
var description []byte

// Description returns the OpenAPI document of everything the server answers over
// HTTP, as JSON. The bytes are not to be changed.
var Description = sync.OnceValue(func() []byte {
	var document any
	err := yaml.Unmarshal(description, &document)
	if err != nil {
		panic(fmt.Sprintf("httpapi: openapi.yaml: %v", err))
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic(fmt.Sprintf("httpapi: openapi.yaml: %v", err))
	}
	return append(text, '\n')
})

// describe serves the description.
func describe(mux *http.ServeMux) {
	mux.HandleFunc("GET "+DescriptionJSON, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// What cannot be sent any more is lost: the client is gone.
		_, _ = w.Write(Description())
	})
	mux.HandleFunc("GET "+DescriptionYAML, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(description)
	})
}
