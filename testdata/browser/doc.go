// Package browser tries the page of a running Spillway in headless Chromium. It is
// a module of its own, so that what drives a browser never gets into the product's
// go.mod. `make browser` runs it and says so where no Chromium is to be found.
package browser
