// Package check tests everything that is shipped around the program: the release, the
// Debian package and its unit, the image, the compose file, the manifests and the
// configurations of proxies. It is a module of its own for the libraries that know these
// formats.
package check
