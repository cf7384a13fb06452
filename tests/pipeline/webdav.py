"""A WebDAV server on a free port of this machine: a DVC remote behind a real socket.

usage: python webdav.py FOLDER        prints its port, then serves the folder until it is ended
"""

import sys


def main(folder: str) -> None:
    """Serve `folder` to anybody on 127.0.0.1."""
    from cheroot import wsgi
    from wsgidav.wsgidav_app import WsgiDAVApp

    app = WsgiDAVApp(
        {
            "provider_mapping": {"/": folder},
            "simple_dc": {"user_mapping": {"*": True}},  # no password
            "verbose": 1,
        }
    )
    server = wsgi.Server(("127.0.0.1", 0), app)
    server.prepare()
    print(server.bind_addr[1], flush=True)
    server.serve()


if __name__ == "__main__":
    main(sys.argv[1])
