#!/bin/sh
# Certificates for trying a secured broker: an authority (ca.pem), and the broker's and its administrator's own (broker.pem, admin.pem:
# private key and certificate). In earnest they come from the authority of your house.
#
#   sh certificates.sh FOLDER HOST...
set -eu
umask 077
folder=$1
shift
mkdir -p "$folder"
cd "$folder"

days=365
names=""
for host in "$@"; do
  case $host in
    *[!0-9.]*) names="$names,DNS:$host" ;;
    *) names="$names,IP:$host" ;;
  esac
done

key() {
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

sign() { # NAME EXTENSIONS
  key "$1.key"
  openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
  printf '%s\n' "basicConstraints=CA:FALSE" "keyUsage=digitalSignature" "$2" >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days "$days" -extfile "$1.ext" -out "$1.crt" 2>/dev/null
  cat "$1.key" "$1.crt" >"$1.pem"
  rm "$1.key" "$1.csr" "$1.ext" "$1.crt"
}

key ca.key
openssl req -x509 -new -key ca.key -subj "/CN=authority for trying" -days "$days" -addext "keyUsage=critical,keyCertSign" -out ca.pem
sign broker "subjectAltName=${names#,}"
sign admin "extendedKeyUsage=clientAuth"
