package main

import "errors"

func report([]string) error { return errors.New("not yet") }
