package leasefile_test

const orderVariable = "GOLOCK_LEASEFILE_ORDER"

func obey(string) {}
