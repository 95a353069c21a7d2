# Makes an image that holds the binary, the certificates of public authorities,
# and a configuration to start from. It has no shell, runs as 65532, and works
# with a read-only root: only /data is written to.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) -t spillway .
#   docker run -p 9900:9900 spillway
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev TARGETOS TARGETARCH
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION=$VERSION
RUN mkdir -p /out/data /out/etc/spillway/config
RUN printf 'server: {http_listen_address: ":9900"}\n' >/out/etc/spillway/config/spillway.yaml

FROM scratch
LABEL org.opencontainers.image.source=https://github.com/spillway-telemetry/spillway org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/bin/spillway /usr/bin/spillway
COPY --from=build /out/etc/spillway /etc/spillway
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
WORKDIR /
VOLUME /data
EXPOSE 9900 4317 4318
ENTRYPOINT ["/usr/bin/spillway"]
CMD ["serve", "--config.file=/etc/spillway/config/spillway.yaml"]
